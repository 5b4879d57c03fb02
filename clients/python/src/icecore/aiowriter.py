"""Writing in the background of an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._http import Retry
from .errors import IcecoreError, IngestError
from .ingest import deliver, entry
from .prefix import Prefixes
from .writer import LAST_CHANCE, Buffer

if TYPE_CHECKING:
    from .aio import AsyncClient

log = logging.getLogger("icecore")


class AsyncWriter:
    """As Writer, for ``async with client.writer() as w``: a task sends what is given.
    The methods wait only while the buffer is full."""

    def __init__(self, client: AsyncClient, buffer: Buffer, prefix: bool) -> None:
        self._client = client
        self._buffer = buffer
        self._prefixes = Prefixes() if prefix else None
        self._changed = asyncio.Condition()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def trace(self, trace: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """See Writer.trace."""
        await self._give("trace", {**(trace or {}), **fields})

    async def begin(self, intent: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """See Writer.begin."""
        await self._give("begin", {**(intent or {}), **fields})

    async def rollout(self, rollout_id: str, **attributes: Any) -> None:
        """See Writer.rollout."""
        await self._give("rollout", {**attributes, "rollout_id": rollout_id})

    async def finish(self, rollout_id: str, status: str, error: Any = None) -> None:
        """See Writer.finish."""
        fields = {"rollout_id": rollout_id, "status": status}
        await self._give("finish", fields if error is None else {**fields, "error": error})

    async def reward(self, reward: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """See Writer.reward."""
        await self._give("reward", {**(reward or {}), **fields})

    async def _give(self, kind: str, fields: Mapping[str, Any]) -> None:
        e = entry(0, kind, fields)
        buffer = self._buffer
        async with self._changed:
            self._start()
            await self._changed.wait_for(lambda: buffer.fatal is not None or self._closing or not buffer.full(e.size))
            if buffer.fatal is not None:
                buffer.report()
            if self._closing:
                raise IcecoreError("the writer is closed")
            e.index = buffer.given
            buffer.add(e)
            if buffer.due() == 0.0 or buffer.unsent == 1:
                self._changed.notify_all()

    async def flush(self, timeout: float | None = None) -> None:
        """See Writer.flush."""
        buffer = self._buffer
        async with self._changed:
            upto = buffer.given
            buffer.wanted = max(buffer.wanted, upto)
            self._changed.notify_all()
            if not await self._until(lambda: buffer.done >= upto or buffer.fatal is not None, timeout):
                raise IngestError(
                    f"after {timeout} s {upto - buffer.done} items are not acknowledged; they are still being sent", (), upto - buffer.done
                )
            buffer.report()

    async def close(self, timeout: float | None = None) -> None:
        """See Writer.close."""
        buffer = self._buffer
        async with self._changed:
            self._closing = True
            buffer.wanted = buffer.given
            self._changed.notify_all()
        if self._task is not None:
            _, running = await asyncio.wait([self._task], timeout=timeout)
            if running:
                self._task.cancel()
                await asyncio.wait([self._task])
                buffer.fatal = buffer.fatal or IcecoreError(f"no acknowledgement within {timeout} s")
        buffer.report()

    async def _until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        try:
            await asyncio.wait_for(self._changed.wait_for(condition), timeout)
            return True
        except asyncio.TimeoutError:
            return False

    async def _news(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        buffer = self._buffer
        while True:
            async with self._changed:
                while (due := buffer.due()) != 0.0:
                    if due is None and self._closing:
                        return
                    await self._news(due)
                batch = buffer.take()
            try:
                await self._client._steps(deliver(batch, buffer.verdict, self._prefixes), lambda: Retry(None))
            except Exception as e:
                log.error("the writer gave up, %d items are not acknowledged: %s", buffer.unsent, e)
                async with self._changed:
                    buffer.fail(e)
                    self._changed.notify_all()
                return
            async with self._changed:
                buffer.settle(batch)
                self._changed.notify_all()

    async def __aenter__(self) -> AsyncWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
            return
        try:
            await self.close(LAST_CHANCE)
        except IngestError as e:  # the block's own exception goes on
            log.error("writer: %s", e)
