"""Rows packed end to end, for attention with cu_seqlens.

Everything is token-aligned (T). Targets are tokens[1:]: where rows meet, the
mask of the next row's first token is False, so no row is trained on another's
logits; rows whose first token is trained are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import DataError
from .rows import Array, Bools, Floats, Ints, Row


@dataclass(frozen=True)
class Pack:
    """One micro-batch: k rows end to end, then perhaps padding as a sequence of its own.

    n is the sum of lengths. Padding and no-op packs have mask False, advantage 0,
    log-prob 0 and a row index of -1.
    """

    tokens: Ints  # [n]
    position_ids: Ints  # [n], from 0 again in each sequence
    cu_seqlens: Ints  # [sequences + 1], sequence i is [cu_seqlens[i], cu_seqlens[i + 1])
    mask: Bools  # [n]
    logprobs: Floats  # [n]; NaN: trained, but not known; 0 where mask is False
    advantages: Floats  # [n], advantage times weight where mask is True, else 0
    row_index: Ints  # [sequences], place in the list of rows that was packed; -1: padding

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def max_seqlen(self) -> int:
        """The longest sequence, as variable-length attention wants it."""
        return int(np.diff(self.cu_seqlens).max())

    @property
    def rows(self) -> list[int]:
        """Places of the packed rows, without padding."""
        return [int(i) for i in self.row_index if i >= 0]

    def unpack(self, values: Array) -> dict[int, Array]:
        """Values along the pack [n, ...] cut into those of each row [L, ...], by the row's place; views."""
        if len(values) != len(self):
            raise DataError(f"unpack: {len(values)} values for a pack of {len(self)} tokens")
        edges = zip(self.row_index, self.cu_seqlens[:-1], self.cu_seqlens[1:], strict=True)
        return {int(row): values[start:end] for row, start, end in edges if row >= 0}


def pack(
    rows: Sequence[Row],
    token_budget: int,
    multiple_of: int = 1,
    *,
    at_least: int = 0,
    pad_id: int = 0,
    advantages: Sequence[float | None] | None = None,
) -> list[Pack]:
    """Rows into packs of at most token_budget tokens, first fit by decreasing length.

    A row longer than the budget is alone in its pack. Each pack is padded to a
    multiple of multiple_of, within the budget. With at_least, full packs are split,
    and then no-op packs added, until there are so many: ranks must run equally
    many (see pack_ranks). Rows without a reward are packed but not trained.
    advantages, one per row (None: not trained), stand in for the delivered ones
    times weight. Raises DataError when a row's first token is trained.
    """
    _check(rows, multiple_of, advantages)
    bins = _first_fit([len(row) for row in rows], token_budget, multiple_of)
    return _build(rows, _grow(bins, [len(row) for row in rows], at_least), multiple_of, pad_id, advantages)


def pack_ranks(
    ranks: Sequence[Sequence[Row]],
    token_budget: int,
    multiple_of: int = 1,
    *,
    count_multiple: int = 1,
    pad_id: int = 0,
) -> list[list[Pack]]:
    """The rows of several ranks, each packed by itself into the same number of packs.

    The number is the largest that any rank needs, rounded up to count_multiple
    (pipeline parallelism). A row_index counts within its own rank.
    """
    if count_multiple < 1:
        raise DataError(f"pack: count_multiple is {count_multiple}, at least 1 is needed")
    for rows in ranks:
        _check(rows, multiple_of, None)
    lengths = [[len(row) for row in rows] for rows in ranks]
    bins = [_first_fit(each, token_budget, multiple_of) for each in lengths]
    count = max((len(each) for each in bins), default=0)
    count = -(-count // count_multiple) * count_multiple
    grown = [_grow(b, each, count) for b, each in zip(bins, lengths, strict=True)]
    return [_build(rows, b, multiple_of, pad_id, None) for rows, b in zip(ranks, grown, strict=True)]


def _check(rows: Sequence[Row], multiple_of: int, advantages: Sequence[float | None] | None) -> None:
    if multiple_of < 1:
        raise DataError(f"pack: multiple_of is {multiple_of}, at least 1 is needed")
    if advantages is not None and len(advantages) != len(rows):
        raise DataError(f"pack: {len(advantages)} advantages for {len(rows)} rows")
    for row in rows:
        if not len(row):
            raise DataError(f"pack: row {row.id} is empty")
        if row.mask[0]:
            raise DataError(f"pack: row {row.id} begins with a trained token: no logits of its own score it")


def _first_fit(lengths: Sequence[int], token_budget: int, multiple_of: int) -> list[list[int]]:
    """Bins of places in lengths; those in a bin ascend."""
    room_of_all = token_budget - token_budget % multiple_of
    if room_of_all < 1:
        raise DataError(f"pack: a budget of {token_budget} tokens holds no multiple of {multiple_of}")
    bins: list[list[int]] = []
    room: list[int] = []
    for at in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        where = next((b for b, free in enumerate(room) if free >= lengths[at]), None)
        if where is None:
            where = len(bins)
            bins.append([])
            room.append(room_of_all)
        bins[where].append(at)
        room[where] -= lengths[at]
    return [sorted(b) for b in bins]


def _grow(bins: list[list[int]], lengths: Sequence[int], count: int) -> list[list[int]]:
    """Splits the heaviest bin of several rows in two until there are count bins, then adds empty ones."""
    bins = list(bins)
    while len(bins) < count:
        several = [b for b in bins if len(b) > 1]
        if not several:
            return bins + [[] for _ in range(count - len(bins))]
        heaviest = max(several, key=lambda b: sum(lengths[i] for i in b))
        halves: tuple[list[int], list[int]] = ([], [])
        for at in sorted(heaviest, key=lambda i: -lengths[i]):
            min(halves, key=lambda half: sum(lengths[i] for i in half)).append(at)
        where = bins.index(heaviest)
        bins[where : where + 1] = [sorted(half) for half in halves]
    return bins


def _build(
    rows: Sequence[Row],
    bins: Sequence[Sequence[int]],
    multiple_of: int,
    pad_id: int,
    advantages: Sequence[float | None] | None,
) -> list[Pack]:
    if advantages is not None:
        rows = [_with_advantage(row, a) for row, a in zip(rows, advantages, strict=True)]
    return [_one([rows[i] for i in b], b, multiple_of, pad_id) for b in bins]


def _with_advantage(row: Row, advantage: float | None) -> Row:
    """The row with a given advantage, which its weight is not to scale again."""
    if advantage is None:
        return row.replace(advantage=0.0, mask=np.zeros(len(row), np.bool_), trained_tokens=0)
    return row.replace(advantage=advantage, weight=1.0)


def _one(rows: Sequence[Row], places: Sequence[int], multiple_of: int, pad_id: int) -> Pack:
    used = sum(len(row) for row in rows)
    # A pack without rows still needs a token, and an input for it.
    padding = -used % multiple_of if rows else -(-2 // multiple_of) * multiple_of
    lengths = [len(row) for row in rows] + ([padding] if padding else [])
    index = list(places) + ([-1] if padding else [])
    starts = np.cumsum([0, *lengths], dtype=np.int32)
    n = int(starts[-1])

    def laid(dtype: npt.DTypeLike, of: Callable[[Row], Array], fill: float) -> Array:
        parts = [of(row) for row in rows]
        return np.concatenate([*parts, np.full(padding, fill, dtype)], dtype=dtype)

    mask = laid(np.bool_, lambda row: row.trained_mask, 0)
    logprobs = laid(np.float32, lambda row: row.logprobs, 0)
    np.copyto(logprobs, 0, where=~mask)
    return Pack(
        tokens=laid(np.int32, lambda row: row.tokens, pad_id),
        position_ids=np.arange(n, dtype=np.int32) - np.repeat(starts[:-1], lengths),
        cu_seqlens=starts,
        mask=mask,
        logprobs=logprobs,
        advantages=laid(np.float32, lambda row: row.token_advantages, 0),
        row_index=np.asarray(index, np.int32),
    )
