"""Rows as one dense block, and rows that only fill it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .errors import DataError
from .rows import Array, Row


@dataclass(frozen=True)
class Padded:
    """B rows as arrays [B, S], token-aligned (T); S is the longest, rounded up.

    What is padding is said by position, never by id: a pad id that is also the
    end-of-turn id stays trained where it was sampled.
    """

    tokens: npt.NDArray[np.int32]
    attention_mask: npt.NDArray[np.bool_]  # False on padding
    position_ids: npt.NDArray[np.int32]  # 0 at each row's first token; 0 on padding
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]  # NaN: trained, but not known; 0 where mask is False
    advantages: npt.NDArray[np.float32]  # advantage times weight where mask is True, else 0
    starts: npt.NDArray[np.int32]  # [B], column of each row's first token
    lengths: npt.NDArray[np.int32]  # [B]

    def __len__(self) -> int:
        return len(self.tokens)

    def unpad(self, values: Array) -> list[Array]:
        """Values [B, S, ...] without padding: for each row [L, ...]; views."""
        if values.shape[:2] != self.tokens.shape:
            raise DataError(f"unpad: values of shape {values.shape} for a block of {self.tokens.shape}")
        edges = zip(values, self.starts, self.lengths, strict=True)
        return [row[start : start + length] for row, start, length in edges]


def pad(
    rows: Sequence[Row],
    side: Literal["left", "right"],
    pad_id: int,
    multiple_of: int = 1,
) -> Padded:
    """Rows as one dense block, padded on the given side to a multiple of multiple_of.

    Rows without a reward have an empty mask (Row.trained_mask).
    """
    if side not in ("left", "right"):
        raise DataError(f'pad: side is {side!r}, "left" or "right" is needed')
    if multiple_of < 1:
        raise DataError(f"pad: multiple_of is {multiple_of}, at least 1 is needed")
    lengths = np.asarray([len(row) for row in rows], np.int32)
    width = -(-int(lengths.max(initial=0)) // multiple_of) * multiple_of
    starts = width - lengths if side == "left" else np.zeros_like(lengths)
    shape = (len(rows), width)
    out = Padded(
        tokens=np.full(shape, pad_id, np.int32),
        attention_mask=np.zeros(shape, np.bool_),
        position_ids=np.zeros(shape, np.int32),
        mask=np.zeros(shape, np.bool_),
        logprobs=np.zeros(shape, np.float32),
        advantages=np.zeros(shape, np.float32),
        starts=starts,
        lengths=lengths,
    )
    for i, row in enumerate(rows):
        at = slice(starts[i], starts[i] + lengths[i])
        mask = row.trained_mask
        out.tokens[i, at] = row.tokens
        out.attention_mask[i, at] = True
        out.position_ids[i, at] = np.arange(lengths[i])
        out.mask[i, at] = mask
        out.logprobs[i, at] = np.where(mask, row.logprobs, 0)
        out.advantages[i, at] = row.token_advantages
    return out


def noop(like: Row, number: int = 0, length: int = 2) -> Row:
    """A row that trains nothing: mask False, advantage 0, weight 0, log-probs 0; Row.noop is True.

    Its ids are the first of like, so they are ids of the vocabulary. It is a
    group by itself (groups_of), without a reward, and its indices are -1: leave it
    out of metrics.
    """
    tokens = like.tokens[:length]
    name = f"noop-{number}"
    made = like.replace(
        noop=True,
        id=name,
        rollout_id=name,
        group_id=None,
        tokens=tokens,
        mask=np.zeros(len(tokens), np.bool_),
        logprobs=np.zeros(len(tokens), np.float32),
        spans=[],
        p=min(1, len(tokens)),
        trained_tokens=0,
        rollout_trained_tokens=0,
        rollout_trajectories=1,
        row_in_rollout=0,
        is_last=True,
        sample_index=None,
        reward=None,
        advantage=0.0,
        zero_advantage=False,
        weight=0.0,
        shared_prefix_row=None,
        shared_prefix_len=0,
        group_index=-1,
        rollout_index=-1,
    )
    made.index = -1
    return made


def fill_up(rows: Sequence[Row], multiple_of: int) -> list[Row]:
    """The rows, and as many no-op rows as make their number a multiple of multiple_of."""
    if multiple_of < 1:
        raise DataError(f"fill up: multiple_of is {multiple_of}, at least 1 is needed")
    return [*rows, *(noop(rows[0], number) for number in range(-len(rows) % multiple_of))]
