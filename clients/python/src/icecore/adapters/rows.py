"""The rules that make leased rows fit for a trainer.

Every adapter goes through `ready`, so that all of them mean the same:

- a row that was never scored is masked: 0.0 would be a score;
- a trained token without a log-prob is masked, or raises: 0.0 would be a certainty;
- log-probs that the trainer's own cannot be set against raise;
- rows of one rollout share one reward and one advantage, or it raises;
- a row whose first token is trained raises: nothing could have predicted it;
- what stands behind the last trained token is cut off: it changes no gradient, and
  some trainers put the score on the last token and lose it when that is context.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from icecore.checks import check_all, fill_missing, gaps
from icecore.errors import DataError
from icecore.rows import Row

Missing = Literal["mask", "raise"]
Comparable = Literal["require", "assume"]
Score = Literal["advantage", "reward"]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class Batch(Protocol):
    """What an adapter reads of a leased batch (icecore.Batch)."""

    def rows(self) -> list[Row]: ...


@dataclass(frozen=True)
class Ready:
    """One row as a trainer may have it. Arrays are T, and read-only.

    tokens: int32. mask: bool, True where trained after all rules. logprobs:
    float32, finite, 0.0 wherever mask is False. score: advantage times weight, or
    the reward; 0.0 when the row was never scored (then mask is all False). p: where
    the response begins, at least 1: the first token that the lease delivered as
    trained, also when a rule has masked it since.
    """

    row: Row
    tokens: Ints
    mask: Bools
    logprobs: Floats
    score: float
    scored: bool
    p: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def trained(self) -> int:
        """Tokens that are trained after all rules."""
        return int(self.mask.sum())

    def scores(self) -> Floats:
        """The score where trained, 0.0 elsewhere; float32, T."""
        scores: Floats = np.where(self.mask, np.float32(self.score), np.float32(0))
        return scores


def ready(
    batch: Batch | Iterable[Row],
    *,
    score: Score = "advantage",
    missing: Missing = "raise",
    comparable: Comparable = "require",
    temperature: float | None = None,
) -> list[Ready]:
    """The rows of a batch (or any rows), in their order, after the rules above.

    score: "advantage" (times weight), or "reward", for a trainer that computes
    advantages itself. missing: "mask" leaves trained tokens without a log-prob out
    of training, "raise" raises. comparable: "assume" takes log-probs as they are,
    whatever their mode and temperature say. temperature: the one at which the
    trainer computes its own log-probs; spans sampled at another raise. None: not
    compared.

    Raises DataError naming the row or the rollout.
    """
    for name, value, known in (
        ("score", score, ("advantage", "reward")),
        ("missing", missing, ("mask", "raise")),
        ("comparable", comparable, ("require", "assume")),
    ):
        if value not in known:
            raise DataError(f"prepare rows: {name} is {value!r}, one of {', '.join(known)} is needed")
    rows: list[Row] = list(batch if isinstance(batch, Iterable) else batch.rows())
    check_all(rows, allow_missing=True)
    if score == "advantage" and any(row.estimator == "none" for row in rows):
        raise DataError(
            'prepare rows: the lease has estimator "none", so there are no advantages; '
            'lease with an estimator, or say score="reward"'
        )
    return [_ready(row, score, missing, comparable, temperature) for row in rows]


def _ready(row: Row, score: Score, missing: Missing, comparable: Comparable, temperature: float | None) -> Ready:
    if comparable == "require":
        _comparable(row, temperature)
    p = row.p
    value = row.scaled_advantage if score == "advantage" else row.reward
    if value is not None and not math.isfinite(value):
        raise DataError(f"prepare row {row.id}: its {score} is {value}, a finite number is needed")
    if value is None:
        row = row.replace(mask=np.zeros(len(row), np.bool_))
    filled = fill_missing(row, missing)
    trained = np.flatnonzero(filled.mask)
    end = int(trained[-1]) + 1 if len(trained) else p + 1
    cut = (filled.tokens[:end], filled.mask[:end], filled.logprobs[:end])
    return Ready(row, *cut, 0.0 if value is None else float(value), value is not None, p)


def _comparable(row: Row, temperature: float | None) -> None:
    found = gaps(row)
    if temperature is not None:
        found += [
            f"span [{s.start}, {s.end}) of trace {s.trace_id}: sampled at temperature {s.temperature:g}, "
            f"the trainer computes at {temperature:g}"
            for s in row.spans
            if s.trainable and s.temperature is not None and not math.isclose(s.temperature, temperature, abs_tol=1e-6)
        ]
    if found:
        raise DataError(
            f"prepare row {row.id} of rollout {row.rollout_id}: its log-probs are not those that the trainer "
            f'computes ({"; ".join(found)}); comparable="assume" takes them as they are'
        )


def rollouts(prepared: Iterable[Ready]) -> list[list[Ready]]:
    """The rows of each rollout together, in order of first appearance."""
    by: dict[str, list[Ready]] = {}
    for one in prepared:
        by.setdefault(one.row.rollout_id, []).append(one)
    return list(by.values())


def groups(prepared: Iterable[Ready]) -> list[list[list[Ready]]]:
    """Groups of rollouts of rows, in order of first appearance."""
    by: dict[int, list[Ready]] = {}
    for one in prepared:
        by.setdefault(one.row.group_index, []).append(one)
    return [rollouts(rows) for rows in by.values()]


def trained(prepared: Sequence[Ready]) -> list[Ready]:
    """Those that train something, for trainers that count nothing but rows given."""
    return [one for one in prepared if one.trained]


def reward_of(one: Ready) -> float:
    """The rollout's reward, NaN when there is none: for logs, never for a loss."""
    return math.nan if one.row.reward is None else float(one.row.reward)


def identity(one: Ready) -> dict[str, Any]:
    """What a trainer's metadata should carry, so that the row can be found again."""
    row = one.row
    return {
        "trajectory_id": row.id,
        "rollout_id": row.rollout_id,
        "group_id": row.group_id,
        "task_id": row.task_id,
        "harness": row.harness,
        "policy_version_min": row.policy_version_min,
        "policy_version_max": row.policy_version_max,
    }
