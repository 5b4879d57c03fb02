"""Leased batches of an AsyncClient."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from . import ingest
from .errors import IcecoreError, LeaseLost, ProblemError
from .held import Held
from .lease import PARTING, Delivered, Waiting
from .prefetch import Polls

if TYPE_CHECKING:
    from .aio import AsyncClient

log = logging.getLogger("icecore")


class AsyncBatch(Delivered):
    """A leased batch, kept alive by a task; see Batch."""

    def __init__(self, table: pa.Table, meta: Mapping[str, Any], held: Held, client: AsyncClient, heartbeat: bool = True) -> None:
        super().__init__(table, meta, held)
        self._client = client
        self._turn = asyncio.Lock()  # see Held.turn
        if heartbeat:
            client._watch(self)

    async def ack(self, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """See Batch.ack."""
        if self._answer is None:
            if self.state in ("lost", "returned"):
                raise self._held.lost()
            self._answer = await self._client._lease_call(self._held, self._held.ack(metrics))
        return self._answer

    async def nack(self, delay: float = 0.0, reason: str | None = None) -> None:
        """See Batch.nack."""
        await self._return(delay, reason, None)

    async def _return(self, delay: float, reason: str | None, patience: float | None) -> None:
        async with self._turn:
            if self.state not in ("returned", "lost"):
                await self._client._lease_call(self._held, self._held.nack(delay, reason), patience)

    async def extend(self, seconds: int | None = None) -> None:
        """See Batch.extend."""
        await self._client._lease_call(self._held, self._held.extend(seconds))

    async def post_logprobs(self, logprobs: Mapping[str, Any], policy_version: int | None = None) -> list[ingest.Item]:
        """See Batch.post_logprobs."""
        return await self._client.post_logprobs(logprobs, self._version(policy_version))

    async def close(self, reason: str | None = None, delay: float = 0.0) -> None:
        """See Batch.close."""
        if not self._held.open:
            return
        try:
            await self._return(delay, reason, PARTING)
        except Exception as e:
            log.warning("lease %s could not be returned, it will expire: %s", self.lease_id, e)
            self._held.state = "returned"

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None and self._held.open:
            log.warning("lease %s (key %s): the block ended without ack; the batch is returned", self.lease_id, self.key)
        await self.close(None if error is None else f"{type(error).__name__}: {error}"[:200])


class AsyncNothing(Waiting):
    """What AsyncClient.lease gives when nothing was ready; see Nothing."""

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


class AsyncPrefetcher:
    """An asynchronous iterator of leased batches, fetched by a task; see Prefetcher."""

    def __init__(
        self,
        client: AsyncClient,
        consumer: str,
        depth: int,
        key: str | Callable[[int], str] | None,
        start: int,
        idle: float | None,
        options: Mapping[str, Any],
    ) -> None:
        self._polls = Polls(depth, key, start, idle, options)
        self._client = client
        self._consumer = consumer
        self._room = asyncio.Semaphore(depth)
        self._ready: asyncio.Queue[AsyncBatch | BaseException | None] = asyncio.Queue()
        self._given: list[weakref.ref[AsyncBatch]] = []
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def __aiter__(self) -> AsyncPrefetcher:
        return self

    async def __anext__(self) -> AsyncBatch:
        if self._task is None and not self._closing:
            self._task = asyncio.get_running_loop().create_task(self._run())
        while not self._closing:
            batch = await self._ready.get()
            if batch is None:
                self._ready.put_nowait(None)  # for whoever asks again
                break
            if isinstance(batch, BaseException):
                raise batch
            self._room.release()
            if not batch.valid and batch.state == "open":
                try:
                    await batch.extend()
                except IcecoreError as e:
                    log.warning("%r could not be extended: %s", batch, e)
            if batch.valid:
                self._given = [ref for ref in self._given if (b := ref()) is not None and b.state == "open"]
                self._given.append(weakref.ref(batch))
                return batch
            log.warning("%r was fetched ahead and lapsed before it was used: it is not handed over", batch)
            await batch.close("lapsed before use")
        raise StopAsyncIteration

    async def ack(self, batch: AsyncBatch, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``batch.ack(metrics)``."""
        return await batch.ack(metrics)

    async def close(self) -> None:
        """See Prefetcher.close."""
        self._closing = True
        self._room.release()
        if self._task is not None:
            # Not cancelled: a lease whose answer is cut off would be nobody's.
            await self._task
        left: list[object] = [ref() for ref in self._given]
        while not self._ready.empty():
            left.append(self._ready.get_nowait())
        for batch in left:
            if isinstance(batch, AsyncBatch):
                await batch.close("the prefetcher was closed")
        self._given.clear()
        self._ready.put_nowait(None)

    async def __aenter__(self) -> AsyncPrefetcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self) -> None:
        try:
            while True:
                await self._room.acquire()
                batch = await self._lease()
                if batch is None:
                    break
                self._ready.put_nowait(batch)
                del batch
        except Exception as e:
            self._ready.put_nowait(e)
        self._ready.put_nowait(None)

    async def _lease(self) -> AsyncBatch | None:
        while not self._closing:
            try:
                batch = await self._client.lease(self._consumer, **self._polls.options())
            except LeaseLost as e:
                self._polls.lost(e)
                continue
            except ProblemError as e:
                raise self._polls.refused(e) from None
            if batch:
                self._polls.got()
                return batch
            if self._polls.over():
                return None
        return None
