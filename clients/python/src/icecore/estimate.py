"""Advantages from rewards, and the weights that make rollouts count alike.

The same numbers as the server's (testdata/conformance/advantages.json is tested
against both), for those who lease with estimator "none" or change rewards.
Everything is in float64.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import DataError

Doubles = npt.NDArray[np.float64]
Estimator = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "maxrl", "none"]

#: Rewards that differ by no more than this, relative to max(1, the largest), are equal.
EQUAL = 1e-9
_EPSILON = {"grpo": 1e-6, "reinforce_pp": 1e-8}
_ESTIMATORS = ("grpo", "dr_grpo", "rloo", "reinforce_pp", "maxrl", "none")


class Advantages(NamedTuple):
    """Per rollout, in the order of the rewards given."""

    advantage: Doubles  #: [n]; NaN: the rollout has no reward (or estimator is "none")
    zero_advantage: npt.NDArray[np.bool_]  #: [n], nothing is to be learned from its group
    group_scored: npt.NDArray[np.int32]  #: [n], rollouts of its group with a reward


def advantages(
    rewards: Sequence[float | None] | Doubles,
    group: Sequence[Hashable],
    estimator: Estimator = "grpo",
    *,
    sigma: Literal["sample", "population"] = "sample",
    epsilon: float | None = None,
    single: Literal["zero", "reward"] = "zero",
    trained_tokens: Sequence[int] | None = None,
) -> Advantages:
    """One advantage per rollout (not per row) from its reward r; mean m and deviation s are its group's.

        grpo          (r - m) / (s + epsilon)         epsilon 1e-6
        dr_grpo       r - m
        rloo          n / (n - 1) · (r - m), the reward less the mean of the others
        maxrl         (r - m) / m, and 0 where m is not above 0    (arXiv 2602.02710)
        reinforce_pp  (r - M) / sqrt(V + epsilon)     epsilon 1e-8; mean and population variance
                      over all rollouts, each weighted by its trained_tokens; NaN for one with none
        none          NaN

    rewards: None or NaN is a missing one, which takes no part and has NaN for an
    advantage. group: one name per rollout, in any order. sigma: divide the variance
    by n - 1 or by n. single: a group of one scored rollout gets 0, or its reward.
    Raises DataError for an infinite reward, unequal lengths, unknown options, and
    an advantage that float32 cannot hold.
    """
    r = np.asarray([np.nan if value is None else value for value in rewards], np.float64)
    _refuse(r, group, estimator, sigma, single, epsilon)
    if epsilon is None:
        epsilon = _EPSILON.get(estimator, 0.0)
    members: dict[Hashable, list[int]] = {}
    for at, name in enumerate(group):
        members.setdefault(name, []).append(at)
    out = Advantages(np.full(len(r), np.nan), np.zeros(len(r), np.bool_), np.zeros(len(r), np.int32))
    for places in members.values():
        scored = [at for at in places if not np.isnan(r[at])]
        out.group_scored[places] = len(scored)
        if scored and estimator not in ("none", "reinforce_pp"):
            out.advantage[scored], out.zero_advantage[places] = _of_group(r[scored], estimator, sigma, epsilon, single)
    if estimator == "reinforce_pp":
        out.advantage[:], out.zero_advantage[:] = _whitened(r, trained_tokens, epsilon)
        for places in members.values():  # a group without any reward is not flagged
            out.zero_advantage[places] &= bool(out.group_scored[places[0]])
    beyond = np.abs(out.advantage) > np.finfo(np.float32).max
    if beyond.any():
        at_fault = int(np.argmax(beyond))
        raise DataError(f"advantage of rollout {at_fault}: a reward of {r[at_fault]:g} makes it too large for float32")
    return out


def _refuse(
    r: Doubles, group: Sequence[Hashable], estimator: str, sigma: str, single: str, epsilon: float | None
) -> None:
    if len(group) != len(r):
        raise DataError(f"advantages: {len(r)} rewards, but {len(group)} group names")
    if np.isinf(r).any():
        raise DataError(f"advantages: the reward of rollout {int(np.argmax(np.isinf(r)))} is infinite")
    for option, value, known in (
        ("estimator", estimator, _ESTIMATORS),
        ("sigma", sigma, ("sample", "population")),
        ("single", single, ("zero", "reward")),
    ):
        if value not in known:
            raise DataError(f"advantages: {option} is {value!r}; known are {', '.join(known)}")
    if epsilon is not None and not 0 <= epsilon < np.inf:
        raise DataError(f"advantages: epsilon is {epsilon}, a number of at least 0 is needed")


def _equal(r: Doubles) -> bool:
    # Halved, since the difference of two huge rewards is infinite.
    return bool(r.max() / 2 - r.min() / 2 <= EQUAL * max(1.0, float(np.abs(r).max())) / 2)


def _exponent(r: Doubles) -> int:
    """k for which r / 2^k is within [-1, 1]: that division is exact, and squares do not overflow."""
    return max(0, int(np.frexp(np.abs(r).max(initial=0.0))[1]))


def _of_group(r: Doubles, estimator: str, sigma: str, epsilon: float, single: str) -> tuple[Doubles, bool]:
    n = len(r)
    if n == 1 and single == "reward":
        return r, False
    if _equal(r):  # n = 1 too
        return np.zeros(n), True
    exponent = _exponent(r)
    x = np.ldexp(r, -exponent)
    mean = x.mean()
    centred = x - mean
    if estimator == "grpo":
        deviation = np.sqrt((centred * centred).sum() / (n - 1 if sigma == "sample" else n))
        return centred / (deviation + np.ldexp(epsilon, -exponent)), False
    if estimator == "maxrl":
        if mean <= np.ldexp(EQUAL * max(1.0, float(np.abs(r).max())), -exponent):
            return np.zeros(n), True
        return centred / mean, False
    if estimator == "rloo":
        centred = centred * (n / (n - 1))
    with np.errstate(over="ignore"):  # infinite is refused, as is all beyond float32
        return np.ldexp(centred, exponent), False


def _whitened(r: Doubles, trained_tokens: Sequence[int] | None, epsilon: float) -> tuple[Doubles, bool]:
    if trained_tokens is None or len(trained_tokens) != len(r):
        raise DataError("advantages: reinforce_pp needs the trained_tokens of every rollout (Row.rollout_trained_tokens)")
    tokens = np.asarray(trained_tokens, np.float64)
    counts = ~np.isnan(r) & (tokens > 0)
    if not counts.any() or _equal(r[counts]):
        return np.where(counts, 0.0, np.nan), bool(counts.any())
    exponent = _exponent(r[~np.isnan(r)])
    x = np.ldexp(r, -exponent)
    share = tokens[counts] / tokens[counts].sum()
    centred = x - (share * x[counts]).sum()
    variance = (share * centred[counts] ** 2).sum()
    whitened = centred / np.sqrt(variance + np.ldexp(epsilon, -2 * exponent))
    return np.where(counts, whitened, np.nan), False


def row_weights(
    rollout: Sequence[Hashable],
    trained_tokens: Sequence[int],
    row_weight: Literal["none", "rollout_mean", "session_mean"],
) -> Doubles:
    """One weight per row, by which its advantage is to be scaled, for a trainer that takes the mean over rows.

    With K rows of R rollouts, a row of n of its rollout's N trained tokens, and
    of its rollout's k rows:

        rollout_mean  K · n / (R · N): every trained token of a rollout counts 1 / (R · N)
        session_mean  K / (R · k): every row of a rollout counts 1 / (R · k)

    rollout: the name of each row's rollout. The weights of a lease are over all of
    its rows, whatever shard is sent. Sources: agent-lightning#593, verl#7580.
    """
    if len(rollout) != len(trained_tokens):
        raise DataError(f"row weights: {len(rollout)} rollout names, but {len(trained_tokens)} token counts")
    tokens: dict[Hashable, int] = {}
    rows: dict[Hashable, int] = {}
    for name, n in zip(rollout, trained_tokens, strict=True):
        tokens[name] = tokens.get(name, 0) + n
        rows[name] = rows.get(name, 0) + 1
    each = len(rollout) / max(1, len(rows))
    if row_weight == "none":
        return np.ones(len(rollout))
    if row_weight == "session_mean":
        return np.asarray([each / rows[name] for name in rollout], np.float64)
    if row_weight == "rollout_mean":
        if empty := [name for name in rows if not tokens[name]]:
            raise DataError(f"row weights: rollout {empty[0]} has no trained token")
        pairs = zip(rollout, trained_tokens, strict=True)
        return np.asarray([each * n / tokens[name] for name, n in pairs], np.float64)
    raise DataError(f"row weights: row_weight is {row_weight!r}; known are none, rollout_mean, session_mean")
