"""The client for programs that are not asynchronous."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pyarrow as pa

from . import calls, export, ingest, lease, losses, sql
from ._http import Answer, Broken, Call, Retry, Steps, request_of, result_of, settings
from .errors import IcecoreError, ProblemError
from .held import Heart, Held
from .lease import Batch, Delivery, LeaseOptions, Nothing
from .prefetch import Prefetcher
from .writer import Buffer, OnRefused, Writer

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("icecore")

T = TypeVar("T")


class Client:
    """A client of an icecore server.

    ``url``: like ``http://127.0.0.1:7470``. ``api_key``: sent as bearer token.
    ``timeout``: seconds without progress after which a connection counts as broken;
    what the server may take on purpose (long polls, SQL) is added. ``retry_seconds``:
    how long failed requests are tried again: on 429, 502, 503 and 504 (after
    Retry-After), and when the connection fails. All requests may be repeated without
    harm.

    Nothing is opened before it is needed. Threads may share a client. After a fork
    the child opens its own connection; a pickled client takes its settings along.
    """

    def __init__(self, url: str, api_key: str | None = None, timeout: float = 60.0, *, retry_seconds: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url begins with http:// or https://: {url!r}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.retry_seconds = retry_seconds
        self._api_key = api_key
        self.last_wait: Nothing | None = None
        """Why the last ``lease`` of this client found nothing."""
        self._reset()
        _clients.add(self)

    # Connections

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None
        self._heart = Heart(self._beat)

    def _connected(self) -> httpx.Client:
        with self._lock:
            if self._http is None:
                self._http = httpx.Client(**settings(self.url, self._api_key, self.timeout))
            return self._http

    def _fetch(self, call: Call[Any]) -> Answer:
        http = self._connected()
        headers: httpx.Headers | None = None
        try:
            with http.stream(**request_of(call, self.url, self.timeout)) as response:
                headers, received = response.headers, time.monotonic()
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
        except (httpx.TransportError, httpx.DecodingError) as e:
            raise Broken(e, headers) from e
        return Answer(response.status_code, response.headers, body, received)

    def _send(self, call: Call[T], retry: Retry | None = None, sleep: Callable[[float], None] = time.sleep) -> T:
        retry = retry or Retry(self.retry_seconds)
        while True:
            try:
                return result_of(call, self._fetch(call))
            except (Broken, ProblemError) as e:
                delay = retry.delay(call, e)
                if delay is None:
                    raise (e.final(call) if isinstance(e, Broken) else e) from e.__cause__
                log.warning("%s %s failed, again in %.1f s: %s", call.method, call.path, delay, e)
            sleep(delay)

    def _steps(self, steps: Steps[T], retry: Callable[[], Retry] | None = None, sleep: Callable[[float], None] = time.sleep) -> T:
        """Carries out what takes several requests."""
        try:
            call = next(steps)
            while True:
                try:
                    result = self._send(call, retry() if retry else None, sleep)
                except IcecoreError as e:
                    call = steps.throw(e)
                else:
                    call = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def close(self) -> None:
        """Returns (nack) every batch that is open, and closes the connections. The
        next use opens them again."""
        for held in self._heart.open():
            batch = held.owner() if held.owner is not None else None
            if batch is not None:
                batch.close()
                continue
            try:  # nobody has it any more
                with held.turn:
                    self._send(held.beat(dropped=True), Retry(0.0))
            except IcecoreError as e:
                log.warning("lease %s could not be returned, it will expire: %s", held.lease_id, e)
                held.state = "lost"
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.url, self._api_key, self.timeout, self.retry_seconds)

    def __repr__(self) -> str:
        return f"icecore.Client({self.url!r})"

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
    ) -> Writer:
        """A writer that sends in the background: when ``max_items`` or ``max_bytes``
        wait, or the first has waited ``flush_seconds``. ``prefix``: prompts that
        continue an earlier call of their rollout are sent as what is new."""
        return Writer(self, Buffer(max_items, max_bytes, flush_seconds, max_buffered_bytes, on_refused), prefix)

    def post_traces(self, traces: ingest.Items, *, allow_refused: bool = False, ack: str | None = None) -> list[ingest.Item]:
        """Stores traces, and gives an Item for each. Raises IngestError when one was
        refused, unless ``allow_refused``. ``ack="queryable"`` waits until SQL sees
        them."""
        return self._steps(ingest.post("trace", traces, allow_refused, ack))

    def begin(self, intents: ingest.Items, *, allow_refused: bool = False, ack: str | None = None) -> list[ingest.Item]:
        """Announces calls: ``[{"trace_id", "rollout_id", "seq"}]``."""
        return self._steps(ingest.post("begin", intents, allow_refused, ack))

    def post_rewards(self, rewards: ingest.Items, *, allow_refused: bool = False, ack: str | None = None) -> list[ingest.Item]:
        """Stores rewards: ``[{"reward_id", "rollout_id", "value"}]``."""
        return self._steps(ingest.post("reward", rewards, allow_refused, ack))

    def put_rollout(self, rollout_id: str, *, ack: str | None = None, **attributes: Any) -> dict[str, Any]:
        """Sets attributes of a rollout; gives the rollout."""
        return self._send(calls.put_rollout(rollout_id, attributes, ack))

    def finish(self, rollout_id: str, status: str, error: Any = None, *, ack: str | None = None) -> dict[str, Any]:
        """Finishes a rollout; gives the rollout."""
        return self._send(calls.finish(rollout_id, status, error, ack))

    def post_logprobs(self, logprobs: Mapping[str, Any], policy_version: int, *, allow_refused: bool = False) -> list[ingest.Item]:
        """Sends the learner's own log-probabilities back, for the mismatch analyses.

        ``logprobs``: trajectory_id → float [L], token-aligned (T) and as long as the
        row: entry t is the log-probability of token t; entry 0, and what is not
        known, NaN (or None). Only trained positions are kept. ``policy_version``: the
        learner's weights that gave them.
        """
        return self._steps(ingest.logprobs(logprobs, policy_version, allow_refused))

    # Reading

    def sql(
        self,
        query: str,
        params: sql.Params | None = None,
        *,
        limit: int | None = None,
        timeout: float | None = None,
        allow_truncated: bool = False,
        codec: str | None = None,
    ) -> sql.Result:
        """Runs one statement that reads (docs/sql.md has the views).

        ``params``: values of ``$1``, ``?`` or, as a dict, ``$name``. ``limit``: rows
        at most; the result is then marked ``truncated`` when there are more. Cut by a
        limit of the server it raises TruncatedError, unless ``allow_truncated``.
        ``timeout``: seconds for the statement.
        """
        return self._send(sql.statement(query, params, limit, timeout, allow_truncated, codec))

    def trajectories(self, *, codec: str | None = None, page_rows: int = export.PAGE_ROWS, **filters: Any) -> pa.Table:
        """All trajectories that the filters of GET /v1/trajectories select, as one
        table (without a lease: no advantages, nothing to acknowledge)."""
        return export.joined(list(self.trajectory_pages(codec=codec, page_rows=page_rows, **filters)))

    def trajectory_pages(
        self, *, cursor: str | None = None, codec: str | None = None, page_rows: int = export.PAGE_ROWS, **filters: Any
    ) -> Iterator[export.Page]:
        """The same in pages of ``page_rows`` rows, each counted against what the
        server promised. ``cursor``: a page's ``next_cursor``, to go on behind it."""
        while True:
            page = self._send(export.page(filters, page_rows, cursor, codec))
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    def analytics(self, name: str, **params: Any) -> dict[str, Any]:
        """GET /v1/analytics/{name}: summary, uplift, splits, mismatch, …; lists are
        joined with commas (``by=["harness", "model"]``)."""
        return self._send(calls.analytics(name, params))

    def rollout(self, rollout_id: str) -> dict[str, Any]:
        """A rollout and the rewards that count."""
        return self._send(calls.rollout(rollout_id))

    def rollouts(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """All rollouts that the filters select, fetched in pages."""
        yield from self._paged("rollouts", filters)

    def groups(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """All groups that the filters select, fetched in pages."""
        yield from self._paged("groups", filters)

    def _paged(self, name: str, filters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = self._send(calls.listing(name, filters, cursor))
            yield from page[name]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def status(self) -> dict[str, Any]:
        """GET /v1/status."""
        return self._send(calls.status())

    # Leases

    def lease(self, consumer: str, **options: Unpack[LeaseOptions]) -> Batch | Nothing:
        """Leases whole groups of finished, rewarded rollouts, and gives them as a
        Batch; when none were ready within ``wait`` seconds, a Nothing that says why
        (so do ``last_wait`` and the log, at INFO). Nothing is false, and
        ``with client.lease(…) as batch`` then gives None.

        Options: see LeaseOptions. The same ``key`` is the same lease with the same
        rows, so that a retry is safe and ranks may each fetch their ``shard`` of
        ``shards``; without one, the client makes one per call. Raises ProblemError
        (``lease_acknowledged``: the key was trained on already), LeaseLost,
        StreamError.
        """
        found = self._send(lease.request(consumer, options))
        if isinstance(found, Delivery):
            self.last_wait = None
            losses.report(consumer, found.meta)
            return Batch(found.table, found.meta, found.held, self, options.get("heartbeat", True))
        self.last_wait = Nothing(found.reasons, found.skipped)
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
    ) -> Prefetcher:
        """Leases ahead in a thread: an iterator of valid batches, ``depth`` of them
        waiting at most. See Prefetcher."""
        return Prefetcher(self, consumer, depth, key, start, idle, options)

    def consumers(self) -> list[dict[str, Any]]:
        """GET /v1/consumers."""
        return self._send(calls.consumers())

    def consumer(self, name: str) -> dict[str, Any]:
        """Progress, lag and open leases of a consumer."""
        return self._send(calls.consumer(name))

    def seek(self, name: str, *, time: Any = None, policy_version: int | None = None, to: str | None = None) -> dict[str, Any]:
        """Moves a consumer: to a time (datetime or RFC 3339), a policy version, or
        ``to="beginning"`` or ``"end"``. Its open leases are cancelled."""
        return self._send(calls.seek(name, time, policy_version, to))

    def delete_consumer(self, name: str) -> None:
        """Forgets a consumer and its progress."""
        self._send(calls.delete_consumer(name))

    def lease_state(self, lease_id: str) -> dict[str, Any]:
        """GET /v1/leases/{lease_id}."""
        return self._send(calls.lease_state(lease_id))

    def _watch(self, batch: Batch) -> None:
        batch._held.owner = weakref.ref(batch)
        if batch._held.open:
            self._heart.watch(batch._held)

    def _beat(self, call: Call[dict[str, Any]]) -> None:
        # One try: the heart itself comes back.
        self._send(call, Retry(0.0))

    def _lease_call(self, held: Held, call: Call[dict[str, Any]], patience: float | None = None) -> dict[str, Any]:
        """Tries for ``patience`` seconds at most; None: as long as the lease may hold."""
        try:
            return self._send(call, Retry(held.patience(self.retry_seconds, patience)))
        except ProblemError as e:
            raise held.failed(e) from None
        finally:
            self._heart.wake()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
# A child must not close what it shares with its parent, and must not use it.
_abandoned: list[Any] = []
_unpickled: dict[tuple[Any, ...], Client] = {}


def _restored(kind: type[Client], url: str, api_key: str | None, timeout: float, retry_seconds: float) -> Client:
    """One client per process for all that were pickled with the same settings."""
    settings_ = (kind, url, api_key, timeout, retry_seconds)
    if settings_ not in _unpickled:
        _unpickled[settings_] = kind(url, api_key, timeout, retry_seconds=retry_seconds)
    return _unpickled[settings_]


def _after_fork() -> None:
    for client in list(_clients):
        _abandoned.append(client._http)
        client._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
