"""How far the trainer's log-probs are from the sampler's, and what to do about it.

Per trained token: l is the trainer's log-prob, b the sampler's, d = l - b,
ratio = exp(d). All in float64; d is clamped to ±20 before exp, and what is not
trained is left out by selection, never by multiplying with 0 (0 · inf is NaN).
Formulas: verl, OpenRLHF, slime, TRL, NeMo-RL, tinker, as of August 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Union

import numpy as np
import numpy.typing as npt

from .errors import DataError
from .rows import Array, Bools, Row

Doubles = npt.NDArray[np.float64]
Lengths = Union[Array, Sequence[Array]]
CLAMP = 20.0


@dataclass(frozen=True)
class Mismatch:
    """Means over trained tokens of which both log-probs are known; NaN: not defined.

    Without such a token everything is NaN; so is pearson where probabilities do
    not vary. Metrics of rows are means over rows with such a token.
    """

    tokens: int  #: trained tokens that were compared
    missing: int  #: trained tokens without one of the log-probs, not compared
    rows: int
    k1: float  #: -d, of KL(sampler || trainer)
    k2: float  #: d² / 2
    k3: float  #: ratio - d - 1
    abs_mean: float  #: |d|
    abs_max: float
    prob_mean: float  #: |exp(l) - exp(b)|
    prob_max: float
    pearson: float  #: correlation of the probabilities
    mult_error: float  #: exp(|d|), NeMo-RL's token_mult_prob_error
    log_ppl_diff: float  #: per row mean(b) - mean(l)
    ppl_ratio: float  #: per row exp of that
    chi2_token: float  #: mean ratio² - 1
    chi2_row: float  #: per row exp(2 · sum of d) - 1, the sum clamped to ±20
    ess: float  #: 1 / mean((ratio / mean ratio)²), effective part of the tokens, in (0, 1]
    row_ess: float  #: the same of the rows' exp(sum of d)
    ratio_mean: float
    ratio_min: float
    ratio_max: float

    def dict(self, prefix: str = "") -> dict[str, float]:
        """As numbers for a logger."""
        return {prefix + name: value for name, value in asdict(self).items()}


def mismatch(trainer: Lengths, sampler: Lengths, mask: Lengths) -> Mismatch:
    """The metrics of one row [L] or of several (a list of [L_i], or of a block's rows [B, S]).

    The three are aligned alike (T, R or N). A log-prob of -inf is clamped; NaN is
    not known, and counted as missing. Raises DataError when shapes differ.
    """
    parts = [_select(*row) for row in _rows(trainer, sampler, mask)]
    missing = sum(lost for _, _, lost in parts)
    compared = [(new, old) for new, old, _ in parts if len(new)]
    if not compared:
        return Mismatch(0, missing, 0, *[float("nan")] * 18)
    new, old = (np.concatenate(each) for each in zip(*compared, strict=True))
    d = _difference(new, old)
    ratio = np.exp(_clamped(d))
    gap = np.abs(np.exp(new) - np.exp(old))
    by_row = [_difference(*row) for row in compared]
    ppl = np.asarray([-row.mean() for row in by_row])
    row_sum = _clamped(np.asarray([row.sum() for row in by_row]))
    return Mismatch(
        tokens=len(d),
        missing=missing,
        rows=len(compared),
        k1=_mean(-d),
        k2=_mean(d * d / 2),
        k3=_mean(ratio - np.minimum(d, CLAMP) - 1),
        abs_mean=_mean(np.abs(d)),
        abs_max=float(np.abs(d).max()),
        prob_mean=_mean(gap),
        prob_max=float(gap.max()),
        pearson=_pearson(np.exp(new), np.exp(old)),
        mult_error=_mean(np.exp(np.minimum(np.abs(d), CLAMP))),
        log_ppl_diff=_mean(ppl),
        ppl_ratio=_mean(np.exp(_clamped(ppl))),
        chi2_token=_mean(ratio * ratio) - 1,
        chi2_row=_mean(np.exp(2 * row_sum)) - 1,
        ess=_ess(ratio),
        row_ess=_ess(np.exp(row_sum)),
        ratio_mean=_mean(ratio),
        ratio_min=float(ratio.min()),
        ratio_max=float(ratio.max()),
    )


class Weights(NamedTuple):
    """Importance weights along a row [L], 0 where nothing is trained or known; changed: the part of
    trained, known tokens whose weight was clamped or dropped."""

    weights: Doubles
    changed: float


def truncated_weights(trainer: Array, sampler: Array, mask: Array, low: float = 0.0, high: float = 2.0) -> Weights:
    """TIS: the ratio clamped to [low, high] (slime: 0 and 2, verl: at most 2)."""
    ratio, known = _ratio(trainer, sampler, mask)
    clamped = np.clip(ratio, low, high)
    return Weights(np.where(known, clamped, 0.0), _part(clamped != ratio, known))


def icepop_weights(trainer: Array, sampler: Array, mask: Array, low: float = 0.5, high: float = 5.0) -> Weights:
    """IcePop: the ratio where it is within [low, high], else 0."""
    ratio, known = _ratio(trainer, sampler, mask)
    inside = (ratio >= low) & (ratio <= high)
    return Weights(np.where(known & inside, ratio, 0.0), _part(~inside, known))


def keep_row(
    trainer: Array,
    sampler: Array,
    mask: Array,
    low: float = 0.0,
    high: float = 3.0,
    geometric: bool = False,
) -> bool:
    """Whether a row's ratio is within [low, high]; a row without a known trained token is kept.

    The ratio is exp(sum of d) (TRL: at most 3), or with geometric exp(mean of d)
    (NeMo-RL quotes 0.999 to 1.002). The first collapses on long rows.
    """
    new, old, _ = _select(*_one(trainer, sampler, mask))
    if not len(new):
        return True
    d = _difference(new, old)
    total = float(d.mean() if geometric else d.sum())
    return bool(low <= np.exp(_clamped(np.asarray(total))) <= high)


class Staleness(NamedTuple):
    """Learner version minus the version that sampled, over trained tokens of a known version."""

    tokens: int
    unknown: int  #: trained tokens whose version is not known
    mean: float  #: NaN without a token, as worst
    worst: float
    mixed_rows: int  #: rows that several versions sampled


def staleness(rows: Iterable[Row], policy_version: int) -> Staleness:
    """How old the trained tokens are for a learner at this version."""
    sampled = [row.versions(fill=-1)[row.mask] for row in rows]
    known = [each[each >= 0] for each in sampled]
    age = policy_version - np.concatenate([*known, np.zeros(0, np.int64)])
    return Staleness(
        tokens=len(age),
        unknown=sum(len(each) for each in sampled) - len(age),
        mean=float(age.mean()) if len(age) else float("nan"),
        worst=float(age.max()) if len(age) else float("nan"),
        mixed_rows=sum(len(np.unique(each)) > 1 for each in known),
    )


def _rows(trainer: Lengths, sampler: Lengths, mask: Lengths) -> list[tuple[Doubles, Doubles, Bools]]:
    if isinstance(mask, np.ndarray) and mask.ndim == 1 or not isinstance(mask, np.ndarray) and not _nested(mask):
        return [_one(trainer, sampler, mask)]
    if not len(trainer) == len(sampler) == len(mask):
        raise DataError(f"compare log-probs: {len(trainer)}, {len(sampler)} and {len(mask)} rows")
    return [_one(*row) for row in zip(trainer, sampler, mask, strict=True)]


def _nested(mask: Sequence[Array]) -> bool:
    return len(mask) == 0 or np.ndim(mask[0]) == 1


def _one(trainer: npt.ArrayLike, sampler: npt.ArrayLike, mask: npt.ArrayLike) -> tuple[Doubles, Doubles, Bools]:
    new, old = np.asarray(trainer, np.float64), np.asarray(sampler, np.float64)
    trained = np.asarray(mask).astype(np.bool_)
    if not new.shape == old.shape == trained.shape or new.ndim != 1:
        raise DataError(f"compare log-probs: shapes {new.shape}, {old.shape} and {trained.shape} of trainer, sampler, mask")
    return new, old, trained


def _select(new: Doubles, old: Doubles, trained: Bools) -> tuple[Doubles, Doubles, int]:
    known = trained & ~np.isnan(new) & ~np.isnan(old)
    return new[known], old[known], int(trained.sum() - known.sum())


def _difference(new: Doubles, old: Doubles) -> Doubles:
    """d; both -inf agree, so d is 0, and one of them is as far as the clamp."""
    both = np.isneginf(new) & np.isneginf(old)
    difference = np.zeros_like(new)
    np.subtract(new, old, out=difference, where=~both)
    return np.where(np.isinf(difference), _clamped(difference), difference)


def _clamped(d: Doubles) -> Doubles:
    return np.clip(d, -CLAMP, CLAMP)


def _ratio(trainer: Array, sampler: Array, mask: Array) -> tuple[Doubles, Bools]:
    new, old, trained = _one(trainer, sampler, mask)
    known = trained & ~np.isnan(new) & ~np.isnan(old)
    ratio = np.ones_like(new)
    ratio[known] = np.exp(_clamped(_difference(new[known], old[known])))
    return ratio, known


def _part(which: Bools, known: Bools) -> float:
    return float(which[known].mean()) if known.any() else 0.0


def _mean(values: Doubles) -> float:
    return float(values.mean())


def _ess(weights: Doubles) -> float:
    return float(1 / np.mean((weights / weights.mean()) ** 2))


def _pearson(x: Doubles, y: Doubles) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / scale) if scale > 0 else float("nan")
