"""Leasing ahead: the next batch comes while the learner trains on this one."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .errors import IcecoreError, LeaseLost, ProblemError
from .lease import Batch, new_key

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("icecore")

# Seconds of one long poll: so long close() may have to wait.
POLL = 2.0


class Polls:
    """Which lease is asked for next, for both prefetchers."""

    def __init__(self, depth: int, key: str | Callable[[int], str] | None, start: int, idle: float | None, options: Mapping[str, Any]) -> None:
        if depth < 1:
            raise ValueError("depth is 1 or more")
        self._key = key
        self._n = start
        self._idle = idle
        self._options = {k: v for k, v in options.items() if k not in ("wait", "wait_seconds")}
        self._asked: str | None = None
        self._began = 0.0

    def options(self) -> dict[str, Any]:
        """Of the next poll. Polls for one batch have one key."""
        if self._asked is None:
            self._began = time.monotonic()
            self._asked = new_key() if self._key is None else self._key(self._n) if callable(self._key) else f"{self._key}-{self._n}"
        asked = {k: v() if callable(v) else v for k, v in self._options.items()}
        return {**asked, "key": self._asked, "wait": max(0.0, min(POLL, self._left()))}

    def _left(self) -> float:
        return POLL if self._idle is None else self._idle - (time.monotonic() - self._began)

    def got(self) -> None:
        """The batch came."""
        self._n += 1
        self._asked = None

    def over(self) -> bool:
        """Nothing came, and it was the last poll."""
        return self._idle is not None and self._left() <= 0.0

    def lost(self, e: LeaseLost) -> None:
        """A lease that expired between two tries of one request: another key may be
        asked for when nobody else knows this one."""
        if self._key is not None:
            raise e
        self._asked = None

    def refused(self, e: ProblemError) -> ProblemError:
        """The error of a poll, with what to do where the server cannot know it."""
        if e.code != "lease_acknowledged":
            return e
        detail = (
            f"key {self._asked!r} was trained on and acknowledged before: {e.detail}. "
            "Give start= the number of the first batch that is not, or another key"
        )
        return ProblemError(e.status, e.code, detail, e.field, e.extra, e.retry_after)


class Prefetcher:
    """An iterator of leased batches, fetched by a thread of its own.

    - At most ``depth`` batches wait; heartbeats keep them alive. A batch is handed
      over only while its lease holds: one that lapsed is extended, and dropped when
      it was given to another.
    - Acknowledge after the optimizer step (``ack(batch)``), not before.
    - ``key``: None: a new key for each batch. Text: ``"{key}-{n}"``, n counted from
      ``start``. A function of n: its result. Ranks that share a lease give the same
      key and options, and each its ``shard``.
    - A key that was acknowledged before raises ProblemError (``lease_acknowledged``):
      a run that goes on gives ``start``, the number of its first batch that is not.
    - ``idle``: seconds without a batch after which iteration ends; None: never.
    - Option values that are functions without arguments are called for each lease:
      ``policy_version=lambda: step``.

    ``close()`` (or the end of a ``with`` block) returns every batch that was fetched
    or handed over and is neither acknowledged nor detached. It may take as long as
    the poll under way, two seconds.
    """

    def __init__(
        self,
        client: Client,
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
        self._depth = depth
        self._changed = threading.Condition()
        self._ready: deque[Batch] = deque()
        self._given: list[weakref.ref[Batch]] = []
        self._closing = False
        self._ended = False
        self._fault: BaseException | None = None
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch that is surely ours. Blocks until there is one; raises what
        the thread ran into."""
        while True:
            batch = self._take()
            if not batch.valid and batch.state == "open":
                try:
                    batch.extend()
                except IcecoreError as e:
                    log.warning("%r could not be extended: %s", batch, e)
            if batch.valid:
                with self._changed:
                    self._given = [ref for ref in self._given if (b := ref()) is not None and b.state == "open"]
                    self._given.append(weakref.ref(batch))
                return batch
            log.warning("%r was fetched ahead and lapsed before it was used: it is not handed over", batch)
            batch.close("lapsed before use")

    def _take(self) -> Batch:
        if self._pid != os.getpid():
            raise IcecoreError("this prefetcher belongs to the process that made it; a forked process calls Client.prefetch itself")
        with self._changed:
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="icecore prefetch", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: self._ready or self._ended or self._closing)
            if self._ready and not self._closing:
                batch = self._ready.popleft()
                self._changed.notify_all()
                return batch
            if self._fault is not None:
                fault, self._fault = self._fault, None
                raise fault
            raise StopIteration

    def ack(self, batch: Batch, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``batch.ack(metrics)``."""
        return batch.ack(metrics)

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # all of it is the parent's, and its lock may be held for ever here
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for batch in [*self._ready, *(ref() for ref in self._given)]:
            if batch is not None:
                batch.close("the prefetcher was closed")
        self._ready.clear()
        self._given.clear()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while self._room():
                batch = self._lease()
                if batch is None:
                    break
                with self._changed:
                    self._ready.append(batch)
                    self._changed.notify_all()
                # Else this frame would keep the batch from being collected.
                del batch
        except BaseException as e:
            self._fault = e
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or len(self._ready) < self._depth)
            return not self._closing

    def _lease(self) -> Batch | None:
        """Polls until there is a batch. None: closed, or idle for too long."""
        while not self._closing:
            try:
                batch = self._client.lease(self._consumer, **self._polls.options())
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
