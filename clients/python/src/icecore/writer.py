"""Writing in the background: what waits, and the thread that sends it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._http import Retry
from .errors import IcecoreError, IngestError, Refused
from .ingest import Entry, Item, deliver, entry, refusal
from .prefix import Prefixes

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("icecore")

# Seconds that a forgotten writer may still take when the interpreter ends, and
# that one may take whose block ended in an exception.
LAST_CHANCE = 5.0

OnRefused = Callable[[Refused], None]


class Buffer:
    """What was given and is not acknowledged yet, and what was refused. It knows
    limits and counts; locks and waiting are its owner's."""

    def __init__(self, max_items: int, max_bytes: int, flush_seconds: float, max_buffered: int, on_refused: OnRefused | None) -> None:
        if max_items < 1 or max_bytes < 1:
            raise ValueError("max_items and max_bytes are 1 or more")
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.flush_seconds = flush_seconds
        self.max_buffered = max(max_buffered, max_bytes)
        self.on_refused = on_refused
        self.waiting: deque[Entry] = deque()
        self.taken = 0  # entries being sent
        self.given = 0
        self.done = 0
        self.size = 0  # bytes of all that is not done
        self.waiting_size = 0
        self.oldest = 0.0
        self.wanted = 0  # entries up to this count are to go at once
        self.refused: list[Refused] = []
        self.fresh: list[Refused] = []  # of the batch being sent: its sender's alone
        self.judged = 0  # entries of that batch whose fate is known
        self.fatal: Exception | None = None

    @property
    def unsent(self) -> int:
        return self.given - self.done

    def full(self, size: int) -> bool:
        return self.unsent > 0 and self.size + size > self.max_buffered

    def add(self, e: Entry) -> None:
        if not self.waiting:
            self.oldest = time.monotonic()
        self.waiting.append(e)
        self.given += 1
        self.size += e.size
        self.waiting_size += e.size

    def due(self) -> float | None:
        """Seconds until something is to be sent; None: nothing waits."""
        if not self.waiting:
            return None
        if len(self.waiting) >= self.max_items or self.waiting_size >= self.max_bytes or self.done + self.taken < self.wanted:
            return 0.0
        return max(0.0, self.oldest + self.flush_seconds - time.monotonic())

    def take(self) -> list[Entry]:
        out: list[Entry] = []
        size = 0
        while self.waiting and len(out) < self.max_items and (not out or size + self.waiting[0].size <= self.max_bytes):
            out.append(self.waiting.popleft())
            size += out[-1].size
        self.waiting_size -= size
        self.taken = len(out)
        return out

    def verdict(self, e: Entry, item: Item) -> None:
        """Takes note of an answer. Only who sends the batch may call it, without a
        lock: on_refused may give the writer something new."""
        self.judged += 1
        if item.status != "refused":
            return
        said = refusal(e.kind, item, e.index)
        if self.on_refused is None:
            self.fresh.append(said)
            return
        try:
            self.on_refused(said)
        except Exception:
            log.exception("on_refused failed; the item is reported by flush() or close() instead")
            self.fresh.append(said)

    def settle(self, batch: list[Entry]) -> None:
        """The batch was sent."""
        self.size -= sum(e.size for e in batch)
        self._close_batch()

    def fail(self, fatal: Exception) -> None:
        """The batch, and all behind it, will not be sent."""
        self.fatal = fatal
        self._close_batch()

    def _close_batch(self) -> None:
        self.done += self.judged
        self.taken = self.judged = 0
        self.refused += self.fresh
        self.fresh = []

    def report(self) -> None:
        """Raises what is to be known, once."""
        if self.fatal is not None:
            raise IngestError(f"sending was given up, {self.unsent} items are not acknowledged: {self.fatal}", self.refused, self.unsent) from self.fatal
        if self.refused:
            refused, self.refused = self.refused, []
            said = "1 item was" if len(refused) == 1 else f"{len(refused)} items were"
            raise IngestError(f"{said} refused, all others up to here are stored", refused)


class Abandoned(Exception):
    """Waiting for the next try was ended by close(timeout=…)."""


class Writer:
    """Sends in the background what it is given, in the order given within each
    rollout. Made by ``Client.writer``.

    - ``trace``, ``begin``, ``rollout``, ``finish`` and ``reward`` return at once;
      they block only while ``max_buffered_bytes`` wait unsent.
    - Broken connections, restarts and a busy server are waited for, for ever (each
      try is logged). Sending again is harmless: every item has its id.
    - Refused items are raised by the next ``flush`` or ``close`` as IngestError, or
      given to ``on_refused`` (called in the writer's thread).
    - ``close`` (or the end of a ``with`` block) returns when all is acknowledged as
      durable. Without it, what is unsent when the interpreter ends is tried once
      more for some seconds, and complained about on stderr.

    Threads may share a writer. A forked process needs one of its own.
    """

    def __init__(self, client: Client, buffer: Buffer, prefix: bool) -> None:
        self._client = client
        self._buffer = buffer
        self._prefixes = Prefixes() if prefix else None
        self._changed = threading.Condition()
        self._gone = threading.Event()  # close() does not wait any longer
        self._closing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="icecore writer", daemon=True)
        self._thread.start()
        _writers.add(self)

    def trace(self, trace: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """A call of the model, with the fields of POST /v1/traces. Token lists may be
        numpy int32 [P], [R] and float32 [R] arrays, which is fastest; log-probs that
        are not known are None in a list. ``request`` and ``response`` may be bytes of
        JSON, which are then kept as they are."""
        self._give("trace", {**(trace or {}), **fields})

    def begin(self, intent: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Announces a call: trace_id, rollout_id, seq."""
        self._give("begin", {**(intent or {}), **fields})

    def rollout(self, rollout_id: str, **attributes: Any) -> None:
        """Sets attributes: task_id, group_id, group_size, sample_index, split, …"""
        self._give("rollout", {**attributes, "rollout_id": rollout_id})

    def finish(self, rollout_id: str, status: str, error: Any = None) -> None:
        """Finishes a rollout, after everything given of it before. ``status``:
        succeeded, failed, timeout, error or cancelled."""
        fields = {"rollout_id": rollout_id, "status": status}
        self._give("finish", fields if error is None else {**fields, "error": error})

    def reward(self, reward: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """A reward: reward_id, rollout_id, value, and name, revision, …"""
        self._give("reward", {**(reward or {}), **fields})

    def _give(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._mine()
        e = entry(0, kind, fields)
        # on_refused calls in the thread that makes room, which is not to wait for it.
        waits = threading.current_thread() is not self._thread
        with self._changed:
            while waits and self._buffer.fatal is None and not self._closing and self._buffer.full(e.size):
                self._changed.wait()
            if self._buffer.fatal is not None:
                self._buffer.report()
            if self._closing:
                raise IcecoreError("the writer is closed")
            e.index = self._buffer.given
            self._buffer.add(e)
            if self._buffer.due() == 0.0 or self._buffer.unsent == 1:
                self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything given so far is acknowledged; raises IngestError for
        what was refused since the last time, or when ``timeout`` seconds do not
        suffice (the items are still being sent then)."""
        self._mine()
        with self._changed:
            upto = self._buffer.given
            self._buffer.wanted = max(self._buffer.wanted, upto)
            self._changed.notify_all()
            ended = self._changed.wait_for(lambda: self._buffer.done >= upto or self._buffer.fatal is not None, timeout)
            if not ended:
                raise IngestError(f"after {timeout} s {upto - self._buffer.done} items are not acknowledged; they are still being sent", (), upto - self._buffer.done)
            self._buffer.report()

    def close(self, timeout: float | None = None) -> None:
        """As flush, and ends the writer. With ``timeout``, what is not acknowledged
        by then is given up, and IngestError counts it."""
        self._mine()
        with self._changed:
            self._closing = True
            self._buffer.wanted = self._buffer.given
            self._changed.notify_all()
        self._thread.join(timeout)
        self._gone.set()
        _writers.discard(self)
        with self._changed:
            self._changed.notify_all()
            if self._buffer.unsent and self._buffer.fatal is None:
                self._buffer.fatal = IcecoreError(f"no acknowledgement within {timeout} s")
            self._buffer.report()

    def _mine(self) -> None:
        if self._pid != os.getpid():
            raise IcecoreError("this writer belongs to the process that made it; a forked process makes its own with Client.writer()")

    def _run(self) -> None:
        while True:
            with self._changed:
                while (due := self._buffer.due()) != 0.0:
                    if due is None and self._closing:
                        return
                    self._changed.wait(due)
                batch = self._buffer.take()
            steps = deliver(batch, self._buffer.verdict, self._prefixes)
            try:
                self._client._steps(steps, lambda: Retry(None), self._sleep)
            except Exception as e:
                with self._changed:
                    self._buffer.fail(e)
                    self._changed.notify_all()
                if not isinstance(e, Abandoned):
                    log.error("the writer gave up, %d items are not acknowledged: %s", self._buffer.unsent, e)
                return
            with self._changed:
                self._buffer.settle(batch)
                self._changed.notify_all()

    def _sleep(self, seconds: float) -> None:
        if self._gone.wait(seconds):
            raise Abandoned("closed before the server could be reached")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close(LAST_CHANCE)
        except IngestError as e:  # the block's own exception goes on
            log.error("writer: %s", e)


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _complain() -> None:
    for writer in list(_writers):
        if writer._pid != os.getpid():
            continue
        unsent = writer._buffer.unsent
        try:
            writer.close(LAST_CHANCE)
            said = "" if not unsent else f"{unsent} items were unsent and have been sent just now"
        except IngestError as e:
            said = str(e)
        if said:
            print(f"icecore: WARNING: a writer was not closed: {said}. Use `with client.writer() as w:` or call close().", file=sys.stderr, flush=True)
