"""A lease as its holder knows it, and the thread that keeps leases alive."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from ._http import Answer, Broken, Call, json_body, loads, segment
from .errors import IcecoreError, LeaseLost, ProblemError, StreamError

log = logging.getLogger("icecore")

Clock = Callable[[], float]


class Held:
    """One lease, or one shard of it.

    ``state``: ``open``; ``acknowledged`` or ``returned`` by this holder; ``lost``:
    the server says that it is not ours any more; ``detached``: another process looks
    after it. ``deadline``: until when it is surely ours, by ``clock``.
    """

    def __init__(self, lease_id: str, key: str, shard: int | None, answer: Answer | None, clock: Clock = time.monotonic) -> None:
        self.lease_id = lease_id
        self.key = key
        self.shard = shard
        self.state = "open"
        self.clock = clock
        self.pid = os.getpid()
        self.why_lost = ""
        self.deadline = float("inf")
        self.every = float("inf")
        self.due = float("inf")
        self.owner: weakref.ref[Any] | None = None
        # Taken by a heartbeat and by a nack: an extension that reached the server
        # behind the nack would take the lease back, and nobody would have it.
        self.turn = threading.Lock()
        if answer is not None:
            self._until(answer, answer.headers.get("icecore-expires-at"))

    @property
    def valid(self) -> bool:
        return self.state in ("open", "detached") and self.clock() < self.deadline

    @property
    def open(self) -> bool:
        return self.state == "open" and self.pid == os.getpid()

    def _until(self, answer: Answer, expires_at: str | None) -> None:
        """Sets the deadline from the server's own two times, so that its clock may
        differ from ours. Its Date is cut to whole seconds: one second less is safe."""
        try:
            left = (time_of(expires_at or "") - parsedate_to_datetime(answer.headers["date"])).total_seconds()
        except (KeyError, TypeError, ValueError) as e:
            raise IcecoreError(f"lease {self.lease_id}: the answer does not say until when it holds (expires_at, Date)") from e
        self.deadline = answer.received + max(left - 1.0, left / 2)
        self.every = max(left, 0.3) / 3
        # From the headers on: the body behind them may have taken most of the lease.
        self.due = answer.received + self.every

    def extend(self, seconds: int | None = None) -> Call[dict[str, Any]]:
        def parse(answer: Answer) -> dict[str, Any]:
            said: dict[str, Any] = loads(answer)
            self._until(answer, said.get("expires_at"))
            return said

        return self._call("extend", {} if seconds is None else {"lease_seconds": seconds}, parse)

    def ack(self, metrics: Mapping[str, Any] | None = None) -> Call[dict[str, Any]]:
        body: dict[str, Any] = {}
        if self.shard is not None:
            body["shard"] = self.shard
        if metrics is not None:
            body["metrics"] = dict(metrics)
        return self._call("ack", body, self._settled("acknowledged"))

    def nack(self, delay: float = 0.0, reason: str | None = None) -> Call[dict[str, Any]]:
        body: dict[str, Any] = {"delay_seconds": delay}
        if reason is not None:
            body["reason"] = reason
        return self._call("nack", body, self._settled("returned"))

    def _settled(self, state: str) -> Callable[[Answer], dict[str, Any]]:
        def parse(answer: Answer) -> dict[str, Any]:
            said: dict[str, Any] = loads(answer)
            acked = state != "acknowledged" or said["state"] == state or self.shard in said["acknowledged_shards"]
            if said["lease_id"] != self.lease_id or not acked:
                raise StreamError(f"lease {self.lease_id} should be {state}, and the answer says: {said}")
            self.state = state
            return said

        return parse

    def _call(self, verb: str, body: dict[str, Any], parse: Callable[[Answer], dict[str, Any]]) -> Call[dict[str, Any]]:
        content, headers = json_body(body)
        return Call("POST", f"/v1/leases/{segment(self.lease_id)}/{verb}", parse, content=content, headers=headers)

    def patience(self, retry_seconds: float, most: float | None) -> float:
        """Seconds for which a call about the lease is tried again: while it may hold,
        and ``most`` at most."""
        if most is not None:
            return min(most, retry_seconds)
        left = self.deadline - self.clock()
        return max(retry_seconds, left if left < float("inf") else 0.0)

    def beat(self, dropped: bool) -> Call[dict[str, Any]]:
        """A heartbeat; of a batch that nobody has any more: its return."""
        call = self.nack(reason="dropped without ack") if dropped else self.extend()
        # One that hangs must not hold up the next.
        return replace(call, timeout=max(1.0, min(self.every, 30.0)))

    def failed(self, e: ProblemError) -> ProblemError:
        """Takes note of what an answer says about the lease; gives what to raise."""
        if e.code == "lease_lost" or e.status == 404:
            self.state, self.why_lost = "lost", e.detail
            return LeaseLost(e.status, e.code, e.detail, e.field, e.extra)
        if e.code == "lease_acknowledged" and self.state == "open":
            # By another process that has the same shard.
            self.state = "acknowledged"
        return e

    def lost(self) -> LeaseLost:
        return LeaseLost(409, "lease_lost", self.why_lost or f"lease {self.lease_id} was returned by this process")

    def beaten(self, fault: Exception | None) -> None:
        """After a heartbeat: when the next one is due, or that the lease is gone."""
        if self.state != "open":
            return  # settled meanwhile
        if isinstance(fault, ProblemError):
            self.failed(fault)
            if self.state == "lost":
                log.error("lease %s (key %s) is lost: %s", self.lease_id, self.key, fault.detail)
        if fault is not None and self.state == "open":
            wait = min(self.every / 3, 5.0)
            log.warning("lease %s: heartbeat failed, again in %.1f s: %s", self.lease_id, wait, fault)
            self.due = self.clock() + wait


class Heart:
    """One thread that extends every open lease of a client each third of its time.

    It ends when nothing is open, and is started again by the next lease. A batch
    that was dropped without ack or nack is returned.
    """

    def __init__(self, beat: Callable[[Call[dict[str, Any]]], Any]) -> None:
        self._beat = beat
        self._changed = threading.Condition()
        self._held: list[Held] = []
        self._thread: threading.Thread | None = None

    def watch(self, held: Held) -> None:
        with self._changed:
            self._held.append(held)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="icecore heartbeat", daemon=True)
                self._thread.start()
            self._changed.notify()

    def open(self) -> list[Held]:
        with self._changed:
            return [h for h in self._held if h.open]

    def wake(self) -> None:
        """Makes the thread look again, after a lease was settled."""
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._held = [h for h in self._held if h.open]
                if not self._held:
                    self._thread = None
                    return
                held = min(self._held, key=lambda h: h.due)
                left = held.due - held.clock()
                if left > 0:
                    self._changed.wait(min(left, 3600.0))
                    continue
            self._once(held)

    def _once(self, held: Held) -> None:
        if not held.turn.acquire(blocking=False):
            held.due = held.clock() + min(held.every / 3, 1.0)  # it is being returned
            return
        try:
            if held.open:
                self._beat_of(held)
        finally:
            held.turn.release()

    def _beat_of(self, held: Held) -> None:
        dropped = held.owner is not None and held.owner() is None
        call = held.beat(dropped)
        if dropped:
            log.warning("lease %s (key %s): its batch was dropped without ack or nack; it is returned", held.lease_id, held.key)
        try:
            self._beat(call)
        except (IcecoreError, Broken) as e:
            held.beaten(e)
        except Exception as e:  # a closed client, say: the next beat tries again
            held.beaten(e)
        if dropped and held.state == "open":
            held.state = "lost"


def time_of(text: str) -> datetime:
    """An RFC 3339 time. (datetime.fromisoformat of Python 3.10 reads neither Z nor
    all fractions.)"""
    text = text.replace("Z", "+00:00").replace("z", "+00:00")
    zone = max(text.rfind("+"), text.rfind("-", 19))
    moment, offset = (text[:zone], text[zone:]) if zone > 0 else (text, "")
    whole, _, fraction = moment.partition(".")
    at = datetime.fromisoformat(whole + "." + (fraction + "000000")[:6] + offset)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return at


def header(headers: httpx.Headers, name: str) -> str | None:
    value: str | None = headers.get("icecore-" + name.replace("_", "-"))
    return value
