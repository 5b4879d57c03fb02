"""Ranks that see the same batches: each has its shard of a lease, and none goes ahead of the others.

Imports torch. Batch n of a run is the lease "{run}-{n}".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import torch

from .errors import LeaseLost
from .lease import Batch
from .prefetch import Prefetcher

log = logging.getLogger("icecore")

# What a rank says of a number: it has that batch, it lost those before and waits for
# that one, or it waited for as long as it should.
HAS, LOST, IDLE = 0, 1, 2


class Numbered:
    """Batches by number, from a prefetcher that is started again where it ended."""

    def __init__(self, run: str, ahead: Callable[[Callable[[int], str]], Prefetcher]) -> None:
        self._run, self._start = run, ahead
        self._asked = 0
        self._ahead: Prefetcher | None = None

    def next(self, number: int) -> tuple[int, int, Batch | None]:
        """The batch of this number, or of a later one when it is lost."""
        if self._ahead is None:
            self._asked, first = number, number

            def key(n: int) -> str:
                self._asked = first + n
                return f"{self._run}-{self._asked}"

            self._ahead = self._start(key)
        state = IDLE
        try:
            for batch in self._ahead:
                if number_of(batch) >= number:
                    return number_of(batch), HAS, batch
                batch.close("the other ranks are further")
        except LeaseLost as e:
            log.warning("batch %d is lost to all ranks: %s", self._asked, e)
            state, self._asked = LOST, self._asked + 1
        self.close()
        return max(number, self._asked), state, None

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


def number_of(batch: Batch) -> int:
    return int(batch.key.rpartition("-")[2])


def place(rank: int | None, world: int | None) -> tuple[int, int]:
    """Which shard of how many is this process's."""
    if (rank is None) != (world is None):
        raise ValueError("give both rank and world, or neither")
    if rank is None or world is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        else:
            rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}: ranks count from 0 to world - 1")
    return rank, world


def gather(number: int, state: int, group: Any) -> list[tuple[int, int]]:
    """What every rank says."""
    mine = torch.tensor([number, state], dtype=torch.int64)
    said = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(said, mine, group=group)
    return [(int(each[0]), int(each[1])) for each in said]
