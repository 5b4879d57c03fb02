"""What must hold of a row before a trainer gets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from .errors import DataError
from .rows import Row

ROUNDING = 1e-3
"""How far above 0 a log-prob may be, in nats: engines round, and the server takes as much."""


def check(row: Row, allow_missing: bool = False) -> Row:
    """Returns the row, or raises DataError with everything that is wrong with it.

    ids, mask and log-probs have one length; p is the first trained position and at
    least 1; the trainable spans tile the mask; every trained token has a finite
    log-prob of at most ROUNDING (allow_missing: or none at all); reward and advantage
    are finite. A no-op row has nothing to check.
    """
    if not row.noop and (faults := faults_of(row, allow_missing)):
        raise DataError(f"check row {row.id} of rollout {row.rollout_id}: {'; '.join(faults)}")
    return row


def faults_of(row: Row, allow_missing: bool = False) -> list[str]:
    """What check finds wrong, as sentences."""
    length = len(row)
    faults = []
    for name, values in (("mask", row.mask), ("logprobs", row.logprobs)):
        if len(values) != length:
            faults.append(f"{length} tokens, but {len(values)} entries of {name}")
    if faults:  # nothing else can be compared
        return faults
    trained = np.flatnonzero(row.mask)
    first = int(trained[0]) if len(trained) else length
    if row.p != first:
        faults.append(f"prompt_length is {row.p}, but the first trained position is {first}")
    if not len(trained):
        faults.append("no token is trained")
    elif first == 0:
        faults.append("the first token is trained, and no logits score it")
    if row.trained_tokens != len(trained):
        faults.append(f"trained_tokens is {row.trained_tokens}, but the mask has {len(trained)}")
    faults += _spans(row) + _logprobs(row, allow_missing)
    for name, value in (("reward", row.reward), ("advantage", row.advantage), ("weight", row.weight)):
        if value is not None and not np.isfinite(value):
            faults.append(f"{name} is {value}")
    return faults


def _spans(row: Row) -> list[str]:
    faults, end = [], 0
    tiled = np.zeros(len(row), np.bool_)
    for span in row.spans:
        if not end <= span.start < span.end <= len(row):
            return [f"span [{span.start}, {span.end}) of trace {span.trace_id} is out of order or of range"]
        end = span.end
        tiled[span.start : span.end] = span.trainable
    # fill_missing takes tokens out of the mask, never out of the spans.
    wrong = row.mask & ~tiled if row.changed("mask") else row.mask != tiled
    if wrong.any():
        faults.append(f"mask and trainable spans differ at position {int(np.argmax(wrong))}")
    return faults


def _logprobs(row: Row, allow_missing: bool) -> list[str]:
    faults = []
    values = row.logprobs[row.mask]
    missing = np.isnan(values)
    if missing.any() and not allow_missing:
        at = int(np.flatnonzero(row.mask)[int(np.argmax(missing))])
        faults.append(
            f"{int(missing.sum())} trained tokens have no log-prob, the first at position {at} "
            '(icecore.fill_missing(row, how="mask") leaves them out of training)'
        )
    for wrong, what in ((np.isinf(values), "infinite"), (np.isfinite(values) & (values > ROUNDING), "positive")):
        if wrong.any():
            at = int(np.flatnonzero(row.mask)[int(np.argmax(wrong))])
            faults.append(f"the log-prob at position {at} is {what}")
    return faults


def fill_missing(row: Row, how: Literal["mask", "raise", "nan"]) -> Row:
    """The row with a number for every log-prob: 0.0 wherever nothing is trained, which no loss reads.

    Where a trained token has none, how decides: "mask" leaves the token out of
    training (and trained_tokens and p follow the mask), "raise" raises DataError,
    "nan" leaves NaN. It is never 0.0 there: that would say that the sampler was
    certain.
    """
    if how not in ("mask", "raise", "nan"):
        raise DataError(f'fill missing log-probs: how is {how!r}, "mask", "raise" or "nan" is needed')
    mask, logprobs = row.mask, row.logprobs
    missing = mask & np.isnan(logprobs)
    if missing.any() and how == "raise":
        raise DataError(
            f"row {row.id} of rollout {row.rollout_id}: {int(missing.sum())} of {int(mask.sum())} trained tokens "
            f'have no log-prob, the first at position {int(np.argmax(missing))}; how="mask" leaves them out of training'
        )
    if missing.any() and how == "mask":
        mask = mask & ~missing
        first = int(np.argmax(mask)) if mask.any() else len(row)
        row = row.replace(mask=mask, p=first, trained_tokens=int(mask.sum()), logprobs_complete=True)
    return row.replace(logprobs=np.where(mask, logprobs, np.float32(0)))


def gaps(row: Row) -> list[str]:
    """Why the row's log-probs are not those that a trainer computes, as sentences; empty: they are comparable.

    A trainer divides logits by the sampling temperature and knows nothing of
    top-p and top-k. So a trained span is comparable when its log-probs are
    "processed" or its temperature 1, and when it was not filtered or its
    log-probs are "raw". Where the mode is unknown it is taken for the wrong one.
    """
    found = []
    for span in row.spans:
        if not span.trainable:
            continue
        where = f"span [{span.start}, {span.end}) of trace {span.trace_id}"
        mode = span.logprobs_mode
        if mode != "processed" and span.temperature is not None and span.temperature != 1:
            found.append(f"{where}: temperature {span.temperature:g} with log-probs {mode}")
        filtered = (span.top_p is not None and span.top_p < 1) or (span.top_k is not None and span.top_k > 0)
        if mode != "raw" and filtered:
            found.append(f"{where}: top_p {span.top_p}, top_k {span.top_k} with log-probs {mode}")
    return found


def comparable(row: Row) -> bool:
    """Whether a trainer's own log-probs can be set against the row's; gaps says why not."""
    return not gaps(row)


def check_all(rows: Sequence[Row], allow_missing: bool = False) -> None:
    """check for every row, and that rows of a rollout have one reward and one advantage."""
    by_rollout: dict[str, Row] = {}
    for row in rows:
        check(row, allow_missing)
        first = by_rollout.setdefault(row.rollout_id, row)
        for name in ("reward", "advantage"):
            if getattr(row, name) != getattr(first, name):
                raise DataError(
                    f"check rollout {row.rollout_id}: {name} is {getattr(first, name)} in row {first.id} "
                    f"and {getattr(row, name)} in row {row.id}"
                )
