"""The client for asyncio programs: the same requests, answers and rules as Client."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pyarrow as pa

from . import calls, export, ingest, lease, losses, sql
from ._http import Answer, Broken, Call, Retry, Steps, request_of, result_of, settings
from .aiolease import AsyncBatch, AsyncNothing, AsyncPrefetcher
from .aiowriter import AsyncWriter
from .errors import IcecoreError, ProblemError
from .held import Held
from .lease import Delivery, LeaseOptions
from .writer import Buffer, OnRefused

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("icecore")

T = TypeVar("T")


class AsyncClient:
    """As Client, with ``await``. It belongs to the event loop that uses it first."""

    def __init__(self, url: str, api_key: str | None = None, timeout: float = 60.0, *, retry_seconds: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url begins with http:// or https://: {url!r}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.retry_seconds = retry_seconds
        self.last_wait: AsyncNothing | None = None
        self._api_key = api_key
        self._http: httpx.AsyncClient | None = None
        self._beats: dict[asyncio.Task[None], weakref.ref[AsyncBatch]] = {}

    async def _fetch(self, call: Call[Any]) -> Answer:
        if self._http is None:
            self._http = httpx.AsyncClient(**settings(self.url, self._api_key, self.timeout))
        headers: httpx.Headers | None = None
        try:
            async with self._http.stream(**request_of(call, self.url, self.timeout)) as response:
                headers, received = response.headers, time.monotonic()
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
        except (httpx.TransportError, httpx.DecodingError) as e:
            raise Broken(e, headers) from e
        return Answer(response.status_code, response.headers, body, received)

    async def _send(self, call: Call[T], retry: Retry | None = None) -> T:
        retry = retry or Retry(self.retry_seconds)
        while True:
            try:
                return result_of(call, await self._fetch(call))
            except (Broken, ProblemError) as e:
                delay = retry.delay(call, e)
                if delay is None:
                    raise (e.final(call) if isinstance(e, Broken) else e) from e.__cause__
                log.warning("%s %s failed, again in %.1f s: %s", call.method, call.path, delay, e)
            await asyncio.sleep(delay)

    async def _steps(self, steps: Steps[T], retry: Callable[[], Retry] | None = None) -> T:
        try:
            call = next(steps)
            while True:
                try:
                    result = await self._send(call, retry() if retry else None)
                except IcecoreError as e:
                    call = steps.throw(e)
                else:
                    call = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    async def close(self) -> None:
        """Returns (nack) every batch that is open, and closes the connections."""
        for task, batch in list(self._beats.items()):
            open_ = batch()
            if open_ is not None:
                await open_.close()
            task.cancel()
        await asyncio.gather(*self._beats, return_exceptions=True)
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"icecore.AsyncClient({self.url!r})"

    # Writing

    def writer(
        self,
        *,
        max_items: int = 500,
        max_bytes: int = 8 << 20,
        flush_seconds: float = 1.0,
        max_buffered_bytes: int = 64 << 20,
        prefix: bool = True,
        on_refused: OnRefused | None = None,
    ) -> AsyncWriter:
        """See Client.writer; used with ``async with``."""
        return AsyncWriter(self, Buffer(max_items, max_bytes, flush_seconds, max_buffered_bytes, on_refused), prefix)

    async def post_traces(self, traces: ingest.Items, *, allow_refused: bool = False, ack: str | None = None) -> list[ingest.Item]:
        """See Client.post_traces."""
        return await self._steps(ingest.post("trace", traces, allow_refused, ack))

    async def begin(self, intents: ingest.Items, *, allow_refused: bool = False, ack: str | None = None) -> list[ingest.Item]:
        """See Client.begin."""
        return await self._steps(ingest.post("begin", intents, allow_refused, ack))

    async def post_rewards(self, rewards: ingest.Items, *, allow_refused: bool = False, ack: str | None = None) -> list[ingest.Item]:
        """See Client.post_rewards."""
        return await self._steps(ingest.post("reward", rewards, allow_refused, ack))

    async def put_rollout(self, rollout_id: str, *, ack: str | None = None, **attributes: Any) -> dict[str, Any]:
        """See Client.put_rollout."""
        return await self._send(calls.put_rollout(rollout_id, attributes, ack))

    async def finish(self, rollout_id: str, status: str, error: Any = None, *, ack: str | None = None) -> dict[str, Any]:
        """See Client.finish."""
        return await self._send(calls.finish(rollout_id, status, error, ack))

    async def post_logprobs(self, logprobs: Mapping[str, Any], policy_version: int, *, allow_refused: bool = False) -> list[ingest.Item]:
        """See Client.post_logprobs."""
        return await self._steps(ingest.logprobs(logprobs, policy_version, allow_refused))

    # Reading

    async def sql(
        self,
        query: str,
        params: sql.Params | None = None,
        *,
        limit: int | None = None,
        timeout: float | None = None,
        allow_truncated: bool = False,
        codec: str | None = None,
    ) -> sql.Result:
        """See Client.sql."""
        return await self._send(sql.statement(query, params, limit, timeout, allow_truncated, codec))

    async def trajectories(self, *, codec: str | None = None, page_rows: int = export.PAGE_ROWS, **filters: Any) -> pa.Table:
        """See Client.trajectories."""
        return export.joined([p async for p in self.trajectory_pages(codec=codec, page_rows=page_rows, **filters)])

    async def trajectory_pages(
        self, *, cursor: str | None = None, codec: str | None = None, page_rows: int = export.PAGE_ROWS, **filters: Any
    ) -> AsyncIterator[export.Page]:
        """See Client.trajectory_pages."""
        while True:
            page = await self._send(export.page(filters, page_rows, cursor, codec))
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    async def analytics(self, name: str, **params: Any) -> dict[str, Any]:
        """See Client.analytics."""
        return await self._send(calls.analytics(name, params))

    async def rollout(self, rollout_id: str) -> dict[str, Any]:
        """See Client.rollout."""
        return await self._send(calls.rollout(rollout_id))

    async def rollouts(self, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """See Client.rollouts."""
        async for found in self._paged("rollouts", filters):
            yield found

    async def groups(self, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """See Client.groups."""
        async for found in self._paged("groups", filters):
            yield found

    async def _paged(self, name: str, filters: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = await self._send(calls.listing(name, filters, cursor))
            for found in page[name]:
                yield found
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def status(self) -> dict[str, Any]:
        """See Client.status."""
        return await self._send(calls.status())

    # Leases

    async def lease(self, consumer: str, **options: Unpack[LeaseOptions]) -> AsyncBatch | AsyncNothing:
        """See Client.lease."""
        found = await self._send(lease.request(consumer, options))
        if isinstance(found, Delivery):
            self.last_wait = None
            losses.report(consumer, found.meta)
            return AsyncBatch(found.table, found.meta, found.held, self, options.get("heartbeat", True))
        self.last_wait = AsyncNothing(found.reasons, found.skipped)
        log.log(found.level, "lease of %s: %s", consumer, found)
        return self.last_wait

    def prefetch(
        self,
        consumer: str,
        depth: int = 1,
        *,
        key: str | Callable[[int], str] | None = None,
        start: int = 0,
        idle: float | None = None,
        **options: Any,
    ) -> AsyncPrefetcher:
        """See Client.prefetch; used with ``async with`` and ``async for``."""
        return AsyncPrefetcher(self, consumer, depth, key, start, idle, options)

    async def consumers(self) -> list[dict[str, Any]]:
        """See Client.consumers."""
        return await self._send(calls.consumers())

    async def consumer(self, name: str) -> dict[str, Any]:
        """See Client.consumer."""
        return await self._send(calls.consumer(name))

    async def seek(self, name: str, *, time: Any = None, policy_version: int | None = None, to: str | None = None) -> dict[str, Any]:
        """See Client.seek."""
        return await self._send(calls.seek(name, time, policy_version, to))

    async def delete_consumer(self, name: str) -> None:
        """See Client.delete_consumer."""
        await self._send(calls.delete_consumer(name))

    async def lease_state(self, lease_id: str) -> dict[str, Any]:
        """See Client.lease_state."""
        return await self._send(calls.lease_state(lease_id))

    def _watch(self, batch: AsyncBatch) -> None:
        task = asyncio.get_running_loop().create_task(self._beat(batch._held, weakref.ref(batch), batch._turn))
        self._beats[task] = weakref.ref(batch)
        task.add_done_callback(lambda t: self._beats.pop(t, None))

    async def _beat(self, held: Held, batch: weakref.ref[AsyncBatch], turn: asyncio.Lock) -> None:
        while held.open:
            await asyncio.sleep(min(1.0, max(0.0, held.due - held.clock())))
            if not held.open or (held.due > held.clock() and batch() is not None):
                continue
            async with turn:
                if not held.open:
                    return
                dropped = batch() is None
                try:
                    await self._send(held.beat(dropped), Retry(0.0))
                except Exception as e:
                    held.beaten(e)
            if dropped:
                log.warning("lease %s (key %s): its batch was dropped without ack or nack; it is returned", held.lease_id, held.key)
                return

    async def _lease_call(self, held: Held, call: Call[dict[str, Any]], patience: float | None = None) -> dict[str, Any]:
        try:
            return await self._send(call, Retry(held.patience(self.retry_seconds, patience)))
        except ProblemError as e:
            raise held.failed(e) from None
