"""One leased batch after another, for hooks that a trainer calls.

A trainer says nowhere that it has used a batch. `Feed` keeps the batches that it
gave out and acknowledges the oldest when the trainer's next calls prove their
use; what is never acknowledged is delivered again when its lease runs out.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from icecore.errors import DataError

log = logging.getLogger("icecore.adapters")

# Seconds that a batch stays away which the trainer could not have: others come first.
AWAY = 30.0


class Feed:
    """Leases for one consumer.

    client: an icecore.Client (anything with `lease(consumer, **fields)`).
    wait (or wait_seconds): seconds that one request waits for a batch; it is asked again until there
    is one. lag: how many batches may be out before the oldest counts as used, see
    `next`. lease: fields of the lease request, for every lease.
    """

    def __init__(self, client: Any, consumer: str, *, wait: float = 30.0, lag: int = 1, **lease: Any) -> None:
        if lag < 1:
            raise DataError(f"feed {consumer}: lag must be at least 1, it is {lag}")
        self.client, self.consumer, self.lag, self.lease = client, consumer, lag, lease
        self.wait = lease.pop("wait_seconds", wait)
        self.out: deque[Any] = deque()
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def next(self, **fields: Any) -> Any:
        """The next batch; waits for it. The oldest batches beyond `lag` are acknowledged.

        Asking for batch n proves that the trainer has used batch n - lag: 1 where it
        trains before it asks again, 2 where it asks one batch ahead. Raises
        DataError when the feed was stopped meanwhile.
        """
        while len(self.out) >= self.lag:
            self._ack(self.out.popleft())
        while not self.stopped:
            if (batch := self.try_next(**fields)) is not None:
                return batch
        raise DataError(f"feed {self.consumer}: stopped while waiting for a batch")

    def try_next(self, **fields: Any) -> Any:
        """The next batch, or None when none was ready within `wait`. Acknowledges nothing."""
        batch = self.client.lease(self.consumer, wait=self.wait, **{**self.lease, **fields})
        if not batch:
            log.info("consumer %s: nothing ready within %g s", self.consumer, self.wait)
            return None
        with self._lock:
            self.out.append(batch)
        return batch

    @contextmanager
    def using(self, batch: Any) -> Iterator[None]:
        """For turning a batch into what the trainer takes: when that raises, the batch is
        returned (and stays away for AWAY seconds), since later calls would prove the use of
        rows that nobody got."""
        try:
            yield
        except BaseException as err:
            with self._lock:
                self.out = deque(b for b in self.out if b is not batch)
            batch.close(f"{type(err).__name__}: {err}"[:200], delay=AWAY)
            raise

    def settle(self, used: Callable[[Any], bool] | None = None, metrics: Any = None) -> int:
        """Acknowledges the batches out of which `used` is true (None: all); says how many."""
        with self._lock:
            done = [b for b in self.out if used is None or used(b)]
            self.out = deque(b for b in self.out if b not in done)
        for batch in done:
            self._ack(batch, metrics)
        return len(done)

    def stopping(self) -> None:
        """Ends waiting; what is out stays out."""
        self._stop.set()

    def stop(self) -> None:
        """Ends waiting, and returns to the queue what is out and not acknowledged."""
        self.stopping()
        while self.out:
            self.out.popleft().close("the feed was stopped")

    @property
    def stopped(self) -> bool:
        """Whether stop() was called."""
        return self._stop.is_set()

    def _ack(self, batch: Any, metrics: Any = None) -> None:
        try:
            batch.ack(metrics=metrics)
        except Exception as err:
            # The rows were trained on; failing the trainer would not undo that.
            log.error("consumer %s: acknowledge lease %s: %s; it may come again", self.consumer, batch.lease_id, err)


def client_for(url: str | None, api_key: str | None = None) -> Any:
    """An icecore.Client for url, or for ICECORE_URL where url is None."""
    from icecore import Client

    url = url or os.environ.get("ICECORE_URL")
    if not url:
        raise DataError("connect to icecore: no address; set icecore_url in the trainer's config, or ICECORE_URL")
    return Client(url, api_key=api_key or os.environ.get("ICECORE_API_KEY"))
