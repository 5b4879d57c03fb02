"""Leases: what is asked for, and the batch that comes back."""

from __future__ import annotations

import difflib
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from . import stream
from ._http import Answer, Call, json_body, segment
from .errors import DataError
from .held import Held

if TYPE_CHECKING:
    import uuid

    from .client import Client
    from .ingest import Item
    from .rows import Row

log = logging.getLogger("icecore")

# Seconds that close() tries to return a batch: an exception may be waiting behind it.
PARTING = 5.0

TEXTS = frozenset("lease_id key consumer expires_at schema_version merge_policy estimator sigma row_weight".split())


class LeaseOptions(TypedDict, total=False):
    """What a lease may ask for; docs/api.md has the meaning and default of each.
    ``wait`` is another name of ``wait_seconds``. ``codec`` (``zstd``, ``lz4``)
    compresses the stream; ``heartbeat=False`` leaves extending to the caller."""

    key: str | None
    max_groups: int | None
    groups: int | None
    max_trajectories: int | None
    max_tokens: int | None
    max_row_tokens: int | None
    lease_seconds: int | None
    wait: float | None
    wait_seconds: float | None
    policy: str | None
    where: Mapping[str, Any] | None
    policy_version: int | None
    max_staleness: int | None
    on_failed: str | None
    failed_score: float | None
    kinds: list[str] | None
    require_reward: bool | None
    include_unprompted: bool | None
    estimator: str | None
    sigma: str | None
    epsilon: float | None
    single: str | None
    skip_zero_advantage: bool | None
    row_weight: str | None
    shards: int | None
    shard: int | None
    tokens_per_microbatch: int | None
    cost: str | None
    microbatch_multiple: int | None
    keep_groups_together: bool | None
    seed: int | None
    quiet_seconds: float | None
    incomplete_seconds: float | None
    codec: str | None
    heartbeat: bool


@dataclass(frozen=True)
class Waiting:
    """Why a lease found nothing, as counts and, with ``str()``, as text.

    ``reasons``: groups that wait, by reason. ``skipped``: groups that this request
    skipped, by reason. It is false, as a Batch is true.
    """

    reasons: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{n} {name.replace('_', ' ')}" for name, n in self.reasons.items() if n]
        parts += [f"{n} skipped as {name.replace('_', ' ')}" for name, n in self.skipped.items() if n]
        return "nothing is ready: " + (", ".join(parts) or "no group is known")

    def __bool__(self) -> Literal[False]:
        return False

    @property
    def level(self) -> int:
        """At which it is logged: what was skipped comes again only after a seek."""
        return logging.WARNING if any(self.skipped.values()) else logging.INFO


class Nothing(Waiting):
    """What Client.lease gives when nothing was ready: false, and in a ``with``
    statement it gives None."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


@dataclass(frozen=True)
class Delivery:
    """A lease as it came, before it is wrapped for either client."""

    table: pa.Table
    meta: dict[str, Any]
    held: Held


def new_key() -> str:
    """A key nobody else has, in the order of time (as UUIDv7)."""
    return f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(10)}"


def request(consumer: str, options: Mapping[str, object]) -> Call[Delivery | Waiting]:
    for name in sorted(set(options) - set(LeaseOptions.__annotations__)):
        near = difflib.get_close_matches(name, LeaseOptions.__annotations__, cutoff=0.75)
        raise TypeError(f"lease has no option {name}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    asked: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if {"wait", "wait_seconds"} <= asked.keys():
        raise TypeError("lease: wait and wait_seconds are the same option: give one of them")
    codec = asked.pop("codec", None)
    asked.pop("heartbeat", None)
    wait = float(asked.pop("wait", asked.pop("wait_seconds", 0.0)))
    # A key of our own makes every repetition of this request the same lease.
    asked.setdefault("key", new_key())
    shard = asked.get("shard")
    if wait:
        asked["wait_seconds"] = wait if wait % 1 else int(wait)
    content, headers = json_body(asked)

    def parse(answer: Answer) -> Delivery | Waiting:
        return waiting(answer) if answer.status == 204 else delivery(answer, asked["key"], shard)

    return Call(
        "POST",
        f"/v1/consumers/{segment(consumer)}/lease",
        parse,
        headers={**headers, "Accept": stream.accept(codec)},
        content=content,
        wait=wait,
        stream=True,
    )


def waiting(answer: Answer) -> Waiting:
    found: dict[str, dict[str, int]] = {"waiting": {}, "skipped": {}}
    for name, value in answer.headers.items():
        if m := re.fullmatch(r"icecore-(waiting|skipped)-(.+)", name):
            found[m[1]][m[2].replace("-", "_")] = int(value)
    return Waiting(found["waiting"], found["skipped"])


def delivery(answer: Answer, key: str, shard: int | None) -> Delivery:
    """Reads and counts a lease's stream; nothing of it is handed over otherwise."""
    table = stream.read_rows(answer)
    said = stream.metadata(table)
    groups = pc.count_distinct(table["group_index"]).as_py()
    stream.expect(answer, "groups", stream.promised(answer, said, "groups"), groups)
    for name, value in (("key", key), ("shard", "" if shard is None else str(shard))):
        if said.get(name, value) != value:
            raise stream.broken(answer, f"it is of {name} {said[name]!r}, and {value!r} was asked for")
    lease_id = said.get("lease_id")
    if not lease_id:
        raise stream.broken(answer, "it does not name its lease")
    said["expires_at"] = answer.headers.get("icecore-expires-at", "")
    held = Held(lease_id, key, shard, answer)
    return Delivery(table, {k: _value(k, v) for k, v in said.items()}, held)


def _value(name: str, text: str) -> Any:
    if name in TEXTS:
        return text
    if text == "":
        return None
    try:
        return float(text) if name == "epsilon" else int(text)
    except ValueError:
        return text


class Delivered:
    """What a leased batch holds; Batch and AsyncBatch add what is done with it.

    ``table``: pyarrow.Table, a row per trajectory, columns as in docs/api.md; rows
    are contiguous by group, then rollout. ``meta``: counts and settings of the lease
    (``icecore.*`` of the schema's metadata), numbers parsed, None for "not said".
    """

    def __init__(self, table: pa.Table, meta: Mapping[str, Any], held: Held) -> None:
        self.table = table
        self.meta = dict(meta)
        self._held = held
        self._answer: dict[str, Any] | None = None
        self._rows: list[Row] | None = None

    @property
    def lease_id(self) -> str:
        return self._held.lease_id

    @property
    def key(self) -> str:
        return self._held.key

    @property
    def shard(self) -> int | None:
        return self._held.shard

    @property
    def state(self) -> str:
        """``open``, ``acknowledged``, ``returned``, ``lost`` or ``detached``."""
        return self._held.state

    @property
    def valid(self) -> bool:
        """The lease is open and surely not expired: train on it. Heartbeats keep it
        so; it turns False when the server says that the lease is lost, or when it
        could not be extended in time."""
        return self._held.valid

    @property
    def microbatches(self) -> int:
        """Micro-batches of each shard, the same for all of them; 0 when
        ``tokens_per_microbatch`` was not asked for."""
        return int(self.meta.get("microbatches") or 0)

    def rows(self) -> list[Row]:
        """A view per row, in the table's order (made once)."""
        if self._rows is None:
            from .rows import rows_of

            self._rows = rows_of(self.table, {k: "" if v is None else str(v) for k, v in self.meta.items()})
        return self._rows

    def groups(self) -> list[list[list[Row]]]:
        """Groups of rollouts of rows."""
        from .rows import groups_of

        return groups_of(self.rows())

    def microbatch(self, i: int) -> list[Row]:
        """Rows of micro-batch ``i`` (0 ≤ i < ``microbatches``); none when the plan
        made more micro-batches than this shard can fill: the rank still takes part
        in that step, with a row that trains nothing (``icecore.noop``)."""
        if not 0 <= i < self.microbatches:
            raise DataError(f"microbatch {i} of {self.microbatches}: ask for tokens_per_microbatch in the lease, and count from 0")
        return [r for r in self.rows() if r.microbatch == i]

    def _version(self, policy_version: int | None) -> int:
        version = policy_version if policy_version is not None else self.meta.get("policy_version_now")
        if version is None:
            raise DataError("post_logprobs: pass policy_version (the learner's), or give it to the lease")
        return int(version)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __bool__(self) -> Literal[True]:
        return True  # a batch of no rows (an empty shard) is still a batch

    def __repr__(self) -> str:
        shard = "" if self.shard is None else f" shard {self.shard}"
        return f"<icecore.{type(self).__name__} {self.key!r}{shard}: {len(self)} rows, {self.meta.get('groups')} groups, {self.state}>"


class Batch(Delivered):
    """A leased batch. A background thread extends its lease every third of
    ``lease_seconds`` until ``ack`` or ``nack``.

    As a context manager it is returned (nack) when the block raises, or ends
    without ``ack``. A batch that is pickled to another process is kept alive and
    settled there: call ``detach()`` first.
    """

    def __init__(self, table: pa.Table, meta: Mapping[str, Any], held: Held, client: Client | None, heartbeat: bool = True) -> None:
        super().__init__(table, meta, held)
        self._client = client
        self._heartbeat = heartbeat
        if client is not None and heartbeat:
            client._watch(self)

    @classmethod
    def of_table(cls, table: pa.Table, meta: Mapping[str, Any] | None = None, lease_id: str = "none", key: str = "none") -> Batch:
        """A batch without a server, for tests and offline data: it never expires,
        and ``ack`` and ``nack`` change ``state`` alone."""
        said = {k: _value(k, v) for k, v in stream.metadata(table).items()} if meta is None else meta
        return cls(table, said, Held(lease_id, key, None, None), None)

    def ack(self, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Says that the batch was trained on: it is never delivered again. Call it
        after the optimizer step. Again is the same as once.

        ``metrics``: kept with the lease. The answer is the lease
        (``POST /v1/leases/{lease_id}/ack``). Raises LeaseLost.
        """
        if self._answer is not None:
            return self._answer
        if self.state in ("lost", "returned"):
            raise self._held.lost()
        self._answer = self._settle(self._held.ack(metrics), "acknowledged")
        return self._answer

    def nack(self, delay: float = 0.0, reason: str | None = None) -> None:
        """Returns the batch: its groups are delivered again after ``delay`` seconds.
        Does nothing when it is returned or lost already. Of a shard, all shards that
        are not acknowledged go back: the other ranks' ``ack`` then raises LeaseLost."""
        self._return(delay, reason, None)

    def _return(self, delay: float, reason: str | None, patience: float | None) -> None:
        held = self._held
        # In a forked child the lock may be one that nobody will release.
        with held.turn if held.pid == os.getpid() else nullcontext():
            if self.state not in ("returned", "lost"):
                self._settle(held.nack(delay, reason), "returned", patience)

    def _settle(self, call: Call[dict[str, Any]], state: str, patience: float | None = None) -> dict[str, Any]:
        if self._client is None:
            self._held.state = state
            return {"lease_id": self.lease_id, "state": state}
        return self._client._lease_call(self._held, call, patience)

    def extend(self, seconds: int | None = None) -> None:
        """Makes the lease end ``seconds`` from now (None: as the lease asked for)."""
        if self._client is not None:
            self._client._lease_call(self._held, self._held.extend(seconds))

    def post_logprobs(self, logprobs: Mapping[str, Any], policy_version: int | None = None) -> list[Item]:
        """Sends the learner's own log-probabilities back, see Client.post_logprobs.
        ``policy_version``: the learner's; default: that of the lease."""
        if self._client is None:
            raise DataError("this batch came from no server: use Client.post_logprobs")
        return self._client.post_logprobs(logprobs, self._version(policy_version))

    def detach(self) -> None:
        """Ends this process's care for the lease without settling it: no more
        heartbeats, and close() leaves it alone. For handing it to another process."""
        if self.state == "open":
            self._held.state = "detached"

    def close(self, reason: str | None = None, delay: float = 0.0) -> None:
        """Returns the batch (for ``delay`` seconds) if it is open and this process's:
        a failure to tell the server within some seconds is logged, and the lease then
        expires."""
        if not self._held.open:
            return
        try:
            self._return(delay, reason, PARTING)
        except Exception as e:
            log.warning("lease %s could not be returned, it will expire: %s", self.lease_id, e)
            self._held.state = "returned"

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None and self._held.open and self._client is not None:
            log.warning("lease %s (key %s): the block ended without ack; the batch is returned", self.lease_id, self.key)
        self.close(None if error is None else f"{type(error).__name__}: {error}"[:200])

    def __reduce__(self) -> tuple[Any, ...]:
        held = self._held
        rest = (held.lease_id, held.key, held.shard, held.state, held.deadline, held.every, self._heartbeat)
        return _revived, (self._client, self.table, self.meta, rest)


def _revived(client: Client | None, table: pa.Table, meta: dict[str, Any], rest: tuple[Any, ...]) -> Batch:
    """A batch in the process that it was sent to (on the same machine: deadlines are
    times of its monotonic clock)."""
    held = Held(rest[0], rest[1], rest[2], None)
    held.state = "open" if rest[3] == "detached" else rest[3]
    held.deadline, held.every, held.pid = rest[4], rest[5], os.getpid()
    # At once: nobody may have extended it on the way.
    held.due = held.clock()
    return Batch(table, meta, held, client, heartbeat=rest[6])


