"""A small server that leases tables, and misbehaves when it is told to.

It keeps no rules but those that the client's tests need. ``faults`` are taken in
order, each by the next request whose path it matches; what is not faulted is
answered as the real server would."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
from tables import delivered, row

# What is answered: status, headers, body; None: as usual.
Reply = tuple[int, dict[str, str], bytes]
Fault = Callable[["Handler"], Reply | None]


def some_table(rows: int = 6) -> Any:
    """Groups of two rollouts of one row."""
    return delivered(
        row([1, 2, 3 + i], [0, 0, 1], rollout_id=f"r-{i}", group_id=f"g-{i // 2}", reward=float(i % 2), advantage=float(i % 2) - 0.5)
        for i in range(rows)
    )


def stream_of(table: Any, per_batch: int = 2, **changed: str) -> bytes:
    """The Arrow stream of a lease; ``changed`` replaces metadata."""
    metadata = {**table.schema.metadata, **{f"icecore.{k}".encode(): v.encode() for k, v in changed.items()}}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table, max_chunksize=per_batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def boundaries(body: bytes) -> list[int]:
    """Offsets behind each message of a stream, its end marker included."""
    source = pa.BufferReader(body)
    found = []
    try:
        while True:
            pa.ipc.read_message(source)
            found.append(source.tell())
    except (EOFError, pa.ArrowInvalid):
        return found


class Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # the client went away
            super().handle_error(request, client_address)


class Fake:
    """``tables``: each new key takes the next one. ``requests``: (path, body) of all
    that came. ``seconds``: of leases whose request names none."""

    def __init__(self, tables: list[Any], seconds: float = 300.0) -> None:
        self.tables = deque(tables)
        self.seconds = seconds
        self.faults: deque[tuple[str, Fault]] = deque()
        self.requests: list[tuple[str, Any]] = []
        self.leases: dict[str, dict[str, Any]] = {}
        self.changed = threading.Condition()
        self.posted: dict[str, list[float | None]] = {}
        fake = self

        class Bound(Handler):
            server_fake = fake

        self.http = Quiet(("127.0.0.1", 0), Bound)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)

    def fail(self, path: str, *faults: Fault) -> None:
        with self.changed:
            self.faults.extend((path, f) for f in faults)

    def count(self, path: str) -> int:
        with self.changed:
            return sum(bool(re.search(path, p)) for p, _ in self.requests)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds after some request; fails after a minute."""
        with self.changed:
            assert self.changed.wait_for(condition, 60)

    def state(self, lease_id: str) -> str:
        with self.changed:
            return str(next(le["state"] for le in self.leases.values() if le["lease_id"] == lease_id))

    def answer(self, path: str, body: Any) -> Reply:
        with self.changed:
            if m := re.fullmatch(r"/v1/consumers/([^/]+)/lease", path):
                return self._lease(body)
            if m := re.fullmatch(r"/v1/leases/([^/]+)/(ack|nack|extend)", path):
                return self._settle(m[1], m[2], body)
            if path == "/v1/trajectories/logprobs":
                table = pa.ipc.open_stream(body).read_all()
                for r in table.to_pylist():
                    self.posted[r["trajectory_id"]] = r["logprobs"]
                items = [{"index": i, "id": t, "status": "stored"} for i, t in enumerate(table["trajectory_id"].to_pylist())]
                return reply({"items": items, "ack": "durable"})
            return problem(404, "no_such_path")

    def _lease(self, body: dict[str, Any]) -> Reply:
        key = body["key"]
        if key not in self.leases:
            if not self.tables:
                return 204, {"Icecore-Waiting-Not-Rewarded": "3", "Icecore-Waiting-Quiet": "0", "Icecore-Skipped-Stale": "2"}, b""
            lease_id = f"lease-{len(self.leases)}"
            body = {"seconds": body.get("lease_seconds", self.seconds), "lease_id": lease_id, "state": "open", "key": key,
                    "shard": body.get("shard"), "table": self.tables.popleft()}
            self.leases[key] = body
        lease = self.leases[key]
        if lease["state"] == "acknowledged":
            return problem(409, "lease_acknowledged")
        if lease["state"] == "lost":
            return problem(409, "lease_lost")
        shard = "" if lease["shard"] is None else str(lease["shard"])
        stream = stream_of(lease["table"], lease_id=lease["lease_id"], key=key, shard=shard)
        return 200, self.headers(lease["lease_id"], key, stream, lease["seconds"]), stream

    def headers(self, lease_id: str, key: str, stream: bytes, seconds: float = 300.0) -> dict[str, str]:
        table = pa.ipc.open_stream(stream).read_all()
        said = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
        named = {"-".join(part.capitalize() for part in re.split(r"[._]", k)): v for k, v in said.items()}
        return {**named, "Content-Type": "application/vnd.apache.arrow.stream", "Icecore-Lease-Id": lease_id, "Icecore-Key": key,
                "Icecore-Expires-At": later(seconds)}

    def _settle(self, lease_id: str, verb: str, body: dict[str, Any]) -> Reply:
        lease = next((le for le in self.leases.values() if le["lease_id"] == lease_id), None)
        if lease is None:
            return problem(404, "not_found")
        if lease["state"] == "lost" or (lease["state"] == "returned" and verb != "nack"):
            return problem(409, "lease_lost")
        if lease["state"] == "acknowledged" and verb != "ack":
            return problem(409, "lease_acknowledged")
        if verb != "extend":
            lease["state"] = {"ack": "acknowledged", "nack": "returned"}[verb]
        return reply({"lease_id": lease_id, "state": lease["state"], "expires_at": later(body.get("lease_seconds", lease["seconds"]))})


def later(seconds: float) -> str:
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def reply(value: Any, status: int = 200) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


def problem(status: int, code: str, **headers: str) -> Reply:
    body = {"type": f"urn:icecore:error:{code}", "title": code, "status": status, "code": code, "detail": f"so it is: {code}"}
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    return status, {"Content-Type": "application/problem+json", **named}, json.dumps(body).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_fake: Fake

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fake = self.server_fake
        arrow = "arrow" in (self.headers.get("Content-Type") or "")
        body = raw if arrow else json.loads(raw or b"{}")
        with fake.changed:
            fake.requests.append((self.path, body))
            at = next((i for i, (path, _) in enumerate(fake.faults) if re.search(path, self.path)), None)
            fault = None
            if at is not None:
                fault = fake.faults[at][1]
                del fake.faults[at]
            fake.changed.notify_all()
        self.done = False
        said = fault(self) if fault else None
        if not self.done:
            self.send(said or fake.answer(self.path, body))
        with fake.changed:
            fake.changed.notify_all()

    def send(self, said: Reply, upto: int | None = None, clean: bool = True) -> None:
        """Sends an answer in chunks; of its body only ``upto`` bytes, and then either
        ends the body as if that were all (``clean``) or breaks the connection."""
        self.done = True
        status, headers, body = said
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status == 204:
            self.end_headers()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (body[:upto][i : i + 4096] for i in range(0, len(body[:upto]), 4096)):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if clean:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.drop()

    def drop(self) -> None:
        """Breaks the connection."""
        self.done = self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(2)


def drops(handler: Handler) -> None:
    """A fault: no answer at all."""
    handler.drop()


def says(said: Reply) -> Fault:
    """A fault: this answer."""
    return lambda handler: said


def forgets(handler: Handler) -> None:
    """A fault: the request is carried out, and its answer lost."""
    fake = handler.server_fake
    fake.answer(handler.path, fake.requests[-1][1])
    handler.drop()


@contextmanager
def serving(*tables: Any, seconds: float = 300.0) -> Iterator[Fake]:
    fake = Fake(list(tables), seconds)
    fake.thread.start()
    try:
        yield fake
    finally:
        fake.http.shutdown()
        fake.http.server_close()
        fake.thread.join()
