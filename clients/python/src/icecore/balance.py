"""Rows shared out over ranks, so that each has about the same work."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal

from .errors import DataError

# A token's work without attention, in units of a pair of tokens' attention
# (verl's figure for a model of 7B): cost = 24576·L + L².
LINEAR = 24576


def cost_of(length: int, cost: Literal["tokens", "quadratic"]) -> int:
    """The work of a row of this many tokens: L, or 24576·L + L² with attention."""
    if cost == "tokens":
        return length
    if cost == "quadratic":
        return LINEAR * length + length * length
    raise DataError(f'balance: cost is {cost!r}, "tokens" or "quadratic" is needed')


def balance(
    lengths: Sequence[int],
    shards: int,
    cost: Literal["tokens", "quadratic"] = "tokens",
    equal_count: bool = False,
) -> list[list[int]]:
    """Places of lengths, shared out over shards: every place is in exactly one, and those of a shard ascend.

    By Karmarkar–Karp (largest differencing); shards may be empty. With equal_count
    all shards have the same number of rows, and len(lengths) must be a multiple of
    shards (fill_up adds no-op rows). Then it is longest first to the emptiest shard
    with room: the usual differencing of as many rows as shards at once leaves
    lognormal lengths 10 to 40 % apart where this leaves 1 to 10.
    """
    if shards < 1:
        raise DataError(f"balance: {shards} shards, at least 1 is needed")
    if equal_count and len(lengths) % shards:
        raise DataError(
            f"balance: {len(lengths)} rows cannot be shared out equally over {shards} shards: "
            "add no-op rows first (icecore.fill_up)"
        )
    costs = [cost_of(length, cost) for length in lengths]
    parts = _equally_many(costs, shards) if equal_count else _differencing(costs, shards)
    return [sorted(part) for part in parts]


def _equally_many(costs: Sequence[int], shards: int) -> list[list[int]]:
    """Longest first, to the shard with least work that has room."""
    room = len(costs) // shards
    parts: list[list[int]] = [[] for _ in range(shards)]
    free = [(0, shard) for shard in range(shards)]
    for at in sorted(range(len(costs)), key=lambda i: -costs[i]):
        work, shard = heapq.heappop(free)
        parts[shard].append(at)
        if len(parts[shard]) < room:
            heapq.heappush(free, (work + costs[at], shard))
    return parts


def _differencing(costs: Sequence[int], shards: int) -> list[list[int]]:
    """Karmarkar–Karp: of all ways to share out some rows, the two most uneven are joined, again and again."""
    heap = [_Parts([(cost, [at])] + [(0, [])] * (shards - 1), at) for at, cost in enumerate(costs)]
    heapq.heapify(heap)
    while len(heap) > 1:
        heapq.heappush(heap, heapq.heappop(heap).join(heapq.heappop(heap)))
    return [part for _, part in heap[0].parts] if heap else [[] for _ in range(shards)]


class _Parts:
    """A way to share out some rows: shards with their sums, heaviest first."""

    def __init__(self, parts: list[tuple[int, list[int]]], number: int) -> None:
        self.parts = sorted(parts, key=lambda part: -part[0])
        self.number = number  # breaks ties, so that the result is always the same
        self.spread = self.parts[0][0] - self.parts[-1][0]

    def __lt__(self, other: _Parts) -> bool:
        return (-self.spread, self.number) < (-other.spread, other.number)

    def join(self, other: _Parts) -> _Parts:
        """The heaviest shard of one takes the lightest of the other."""
        pairs = zip(self.parts, reversed(other.parts), strict=True)
        return _Parts([(a + b, x + y) for (a, x), (b, y) in pairs], min(self.number, other.number))
