"""Leased batches for PyTorch. Imports torch.

    batches = icecore.torch.Batches(client, "learner", groups=64, policy_version=lambda: step)
    for batch in batches:
        tensors = batch.tensors(device="cuda", int64=True)
        ...
        optimizer.step()
        batches.ack(batch)

A batch is acknowledged after the optimizer step, never when it is yielded: what was
not acknowledged when a process dies is delivered again.
"""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

try:
    import torch
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    raise ModuleNotFoundError(
        'icecore.torch needs PyTorch: install torch, or this package with its extra "torch" (icecore[torch])', name="torch"
    ) from e
from torch.utils.data import IterableDataset, get_worker_info

from ._http import Answer, Call
from .calls import lease_state
from .client import Client
from .errors import IcecoreError, LeaseLost
from .held import Held
from .lease import Batch
from .prefetch import Prefetcher
from .ranks import HAS, IDLE, Numbered, gather, number_of, place
from .tensors import row_advantages, to_tensors

__all__ = ["Batches", "TensorBatch", "row_advantages", "to_tensors"]

log = logging.getLogger("icecore")

_NEVER_DROPPED: weakref.ref[Any] = weakref.ref(Batch)


class TensorBatch(Batch):
    """A Batch that also comes as tensors, and may travel between processes."""

    def __init__(self, batch: Batch, pin: bool = False) -> None:
        """Takes the lease over from batch, which is detached."""
        held = copy.copy(batch._held)
        # The heart may be looking at batch's lease right now: it is not to think it dropped.
        batch._held.owner = _NEVER_DROPPED
        batch.detach()
        super().__init__(batch.table, batch.meta, held, batch._client, batch._heartbeat)
        self._pin = pin
        self._pinned: dict[str, torch.Tensor] | None = None

    def tensors(
        self, device: torch.device | str | None = None, *, copy: bool = True, int64: bool = False
    ) -> dict[str, torch.Tensor]:
        """All rows end to end, see to_tensors."""
        if self._pinned is None:
            return to_tensors(self, device, copy=copy, int64=int64, pin=self._pin)
        tensors = {name: t if device is None else t.to(device, non_blocking=True) for name, t in self._pinned.items()}
        return tensors | {"tokens": tensors["tokens"].long()} if int64 else tensors

    def pin_memory(self) -> TensorBatch:
        """Copies its tensors to page-locked memory. DataLoader(pin_memory=True) calls it, in a thread."""
        self._pin = True
        self._pinned = to_tensors(self, pin=True)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (*super().__reduce__(), self._pin)


def _arrived(revive: Any, state: tuple[Any, ...], pin: bool) -> TensorBatch:
    """A batch in the process it was sent to. It may have waited for long: extended, it is surely ours."""
    batch = TensorBatch(revive(*state), pin)
    if batch.state == "open" and not batch.valid:
        try:
            batch.extend()
        except IcecoreError as e:
            log.warning("%r lapsed on the way to this process: %s", batch, e)
    return batch


class _Keeper(Held):
    """Extends a lease for another process until that one looks after it itself.

    Extending a lease that was returned would take it back. So the lease is looked at
    first: when it is settled, or when somebody else has extended it, this ends.
    """

    def __init__(self, held: Held, expires_at: str) -> None:
        super().__init__(held.lease_id, held.key, held.shard, None)
        self.deadline, self.every, self.due = held.deadline, held.every, held.due
        self._expires_at = expires_at
        self._looked = False

    def extend(self, seconds: int | None = None) -> Call[dict[str, Any]]:
        call = super().extend(seconds) if self._looked else lease_state(self.lease_id)
        after = self._extended if self._looked else self._seen

        def parse(answer: Answer) -> dict[str, Any]:
            said = call.parse(answer)
            after(said)
            return said

        return Call(call.method, call.path, parse, headers=call.headers, content=call.content)

    def _seen(self, said: dict[str, Any]) -> None:
        self._looked = said["state"] in ("open", "expired") and said["expires_at"] == self._expires_at
        self.due = self.clock()  # to extend it now
        if not self._looked:
            self.state = "detached"

    def _extended(self, said: dict[str, Any]) -> None:
        self._looked, self._expires_at = False, said["expires_at"]


class Batches(IterableDataset[TensorBatch]):  # type: ignore[misc, unused-ignore]  # without torch
    """Leased batches, fetched ahead by a thread, as an iterable dataset without a length.

    client, consumer: who leases. prefetch: batches that wait at most. pin: make
    tensors in page-locked memory. Other options are those of Client.lease; a function
    without arguments is called for each lease.

    steps: end after so many batches. idle: end after so many seconds without one;
    None: wait. Either way all ranks end together.

    Ranks. rank and world, else torch.distributed, else the variables RANK and
    WORLD_SIZE say which shard of each batch this process takes (give rank and world
    of the data-parallel group when others share its rows). All ranks need the same
    key, which names the run: batch n is the lease "{key}-{n}", counted from start, so
    a run that is resumed at step n says start=n. With torch.distributed the ranks
    agree on each batch over group (by default all processes: then each of them must
    iterate), so that none sees one more than another. Without it there is no idle,
    and a lease that is lost raises.

    Workers. Best with num_workers=0: fetching is a thread already. In
    DataLoader(batches, batch_size=None, num_workers=k) each worker leases for
    itself and keeps alive what waits in the loader's queue; look at batch.valid
    before training. With ranks the numbers are dealt to the workers.
    """

    def __init__(
        self,
        client: Client,
        consumer: str,
        prefetch: int = 1,
        pin: bool = False,
        *,
        key: str | None = None,
        start: int = 0,
        steps: int | None = None,
        idle: float | None = None,
        rank: int | None = None,
        world: int | None = None,
        group: Any = None,
        **lease: Any,
    ) -> None:
        super().__init__()
        self.client = client
        self.consumer = consumer
        self.rank, self.world = place(rank, world)
        # Known here, since in a worker torch.distributed is of no use.
        self._agreeing = self.world > 1 and torch.distributed.is_available() and torch.distributed.is_initialized()
        if self.world > 1:
            if key is None:
                raise ValueError("ranks need one key for the batches that they share: give key=, the name of the run")
            if idle is not None and not self._agreeing:
                raise ValueError("idle: ranks end together only if torch.distributed is initialized first; or give steps")
            if taken := sorted({"shards", "shard"} & lease.keys()):
                raise ValueError(f"{taken[0]} follows from world and rank: give those")
            lease |= {"shards": self.world, "shard": self.rank}
        self._prefetch, self._pin, self._key, self._start = prefetch, pin, key, start
        self._steps, self._idle, self._group, self._lease = steps, idle, group, lease

    def __iter__(self) -> Iterator[TensorBatch]:
        worker = get_worker_info()
        if worker is not None:
            return self._in_worker(worker.id, worker.num_workers)
        return self._agreed() if self._agreeing else self._alone()

    def ack(self, batch: Batch, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """batch.ack(metrics): call it after the optimizer step, in each rank for its own shard."""
        return batch.ack(metrics)

    def _ahead(self, key: Callable[[int], str] | None) -> Prefetcher:
        return self.client.prefetch(self.consumer, self._prefetch, key=key, idle=self._idle, **self._lease)

    def _alone(self, first: int = 0, stride: int = 1) -> Iterator[TensorBatch]:
        """Batches first, first + stride, … of this rank, which hears from no other."""
        numbers = range(first, 2**62 if self._steps is None else self._steps, stride)
        keys = None if self._key is None else lambda n: f"{self._key}-{self._start + numbers[n]}"
        # What was handed over is no longer the prefetcher's: its holder settles it.
        with self._ahead(keys) as ahead:
            for number, batch in zip(numbers, ahead):  # noqa: B905 (the shorter ends it)
                if self.world > 1 and number_of(batch) != self._start + number:
                    raise IcecoreError(
                        f"rank {self.rank} lost the lease {self._key}-{self._start + number}, and cannot tell the others: "
                        "initialize torch.distributed before making Batches, or lease for longer (lease_seconds)"
                    )
                yield TensorBatch(batch, self._pin)
                del batch

    def _in_worker(self, worker: int, workers: int) -> Iterator[TensorBatch]:
        if self.world > 1 and self._idle is not None:
            raise ValueError("idle: ranks cannot agree from the workers of a DataLoader: give steps, or num_workers=0")
        for batch in self._alone(worker, workers):
            # The main process looks after the batch once it has it. Until then this
            # heartbeat holds the lease, but not the memory.
            client = batch._client
            if client is not None and batch._heartbeat:
                try:
                    said = client._lease_call(batch._held, batch._held.extend())
                except LeaseLost as e:
                    log.warning("%r is not handed over: %s", batch, e)
                    continue
                client._heart.watch(_Keeper(batch._held, said["expires_at"]))
            batch.detach()
            yield batch
            del batch

    def _agreed(self) -> Iterator[TensorBatch]:
        """Batches that every rank has."""
        group = self._group if self._group is not None else torch.distributed.new_group(backend="gloo")
        number, end = self._start, None if self._steps is None else self._start + self._steps
        source = Numbered(str(self._key), self._ahead)
        batch: Batch | None = None
        try:
            while end is None or number < end:
                state = HAS
                if batch is None or number_of(batch) < number:
                    if batch is not None:
                        batch.close("the other ranks are further")
                    number, state, batch = source.next(number)
                seen = gather(number, state, group)
                number = max(n for n, _ in seen)
                if all(each == (number, HAS) for each in seen):
                    assert batch is not None
                    given, batch, number = TensorBatch(batch, self._pin), None, number + 1
                    yield given
                    del given
                elif all(each == (number, IDLE) for each in seen):
                    return
        finally:
            if batch is not None:
                batch.close("iteration ended")
            source.close()
