"""Requests described once and sent by either client: what to send, how to read
the answer, when to try again. Nothing here waits or opens a connection."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from ._version import __version__
from .errors import ConnectionFailed, IcecoreError, LeaseLost, ProblemError, StreamError

T = TypeVar("T")

ARROW = "application/vnd.apache.arrow.stream"

# The answers after which the same request may succeed.
RETRYABLE = frozenset({429, 502, 503, 504})

# Seconds: of the first wait (doubled each time, and of it a random part), the
# longest such wait, and the longest that Retry-After may make us wait.
FIRST_WAIT, LONGEST_WAIT, LONGEST_RETRY_AFTER = 0.1, 10.0, 60.0


@dataclass(frozen=True)
class Answer:
    """A whole answer. ``body`` is the only copy of its bytes. ``received``: when its
    headers came, by time.monotonic()."""

    status: int
    headers: httpx.Headers
    body: bytearray
    received: float = 0.0


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request.

    ``wait``: seconds that the server may take on purpose, added to the read
    timeout. ``items``: an answer of status 422 lists refused items, which is no
    fault of the request. ``repeatable``: may be sent again although no answer came
    in time; all of the API's writes may, a long SQL statement should not.
    """

    method: str
    path: str
    parse: Callable[[Answer], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    wait: float = 0.0
    items: bool = False
    stream: bool = False
    repeatable: bool = True
    timeout: float | None = None  # seconds; None: the client's


# What takes several requests is a generator: it yields calls, and is sent their
# results, or thrown their errors.
Steps = Generator[Call[Any], Any, T]


class Broken(Exception):
    """The connection gave no whole answer. ``headers`` when these had come."""

    def __init__(self, cause: httpx.RequestError, headers: httpx.Headers | None = None) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.cause = cause
        self.headers = headers

    def final(self, call: Call[Any]) -> IcecoreError:
        said = f"{call.method} {call.path}: {type(self.cause).__name__}: {self.cause}"
        if call.stream and self.headers is not None:
            return StreamError(
                f"{said}: the stream broke off; ask again (a lease: with the same key)",
                self.headers.get("icecore-lease-id"),
                self.headers.get("icecore-key"),
            )
        return ConnectionFailed(said)


class Retry:
    """Says after which wait a failed call is sent again.

    ``seconds``: how long after the first failure it still may be; None: for ever.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self.failures = 0
        self.first = 0.0

    def delay(self, call: Call[Any], fault: Broken | ProblemError) -> float | None:
        """Seconds to wait, or None: give up."""
        now = self.clock()
        if self.failures == 0:
            self.first = now
        asked: float | None = None
        if isinstance(fault, ProblemError):
            if fault.status not in RETRYABLE:
                return None
            asked = retry_after(fault.retry_after)
        elif isinstance(fault.cause, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
            return None
        elif not call.repeatable and not isinstance(fault.cause, (httpx.ConnectError, httpx.ConnectTimeout)):
            return None
        backoff = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self.failures, 20)) * random.uniform(0.5, 1.0)
        # A little is added to what the server asks for, so that clients that it
        # sent away together do not come back together.
        delay = backoff if asked is None else min(asked, LONGEST_RETRY_AFTER) + random.uniform(0.0, FIRST_WAIT)
        if self.seconds is not None and now + delay > self.first + self.seconds:
            return None
        self.failures += 1
        return delay


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header: a number or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def settings(url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    """Arguments of httpx.Client and httpx.AsyncClient."""
    headers = {"User-Agent": f"icecore-python/{__version__}", "Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return {
        "headers": headers,
        "timeout": httpx.Timeout(timeout, connect=min(timeout, 10.0), pool=None),
        # Threads that share a client never wait for each other's connections.
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
    }


def request_of(call: Call[Any], base: str, timeout: float) -> dict[str, Any]:
    """Arguments of build_request."""
    timeout = call.timeout or timeout
    params = [(k, v) for k, vs in call.params.items() for v in (vs if isinstance(vs, (list, tuple)) else [vs])]
    return {
        "method": call.method,
        "url": base + call.path,
        "params": [(k, plain(v)) for k, v in params if v is not None] or None,
        "headers": dict(call.headers),
        "content": call.content,
        "timeout": httpx.Timeout(timeout, connect=min(timeout, 10.0), read=timeout + call.wait, pool=None),
    }


def plain(value: Any) -> str:
    """A value as a query parameter."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def result_of(call: Call[T], answer: Answer) -> T:
    """Reads an answer, or raises what it says."""
    kind = answer.headers.get("content-type", "").split(";")[0].strip()
    if answer.status >= 400 and not (call.items and answer.status == 422 and kind == "application/json"):
        raise problem_of(answer)
    if not 200 <= answer.status < 300 and answer.status != 422:
        raise ProblemError(answer.status, "unexpected_status", f"{call.method} {call.path} is not answered like that; is this an icecore server?")
    try:
        return call.parse(answer)
    except IcecoreError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as e:
        raise StreamError(f"{call.method} {call.path}: the answer is not what the API says ({type(e).__name__}: {e}); is this an icecore server?") from e


def problem_of(answer: Answer) -> ProblemError:
    try:
        body = json.loads(answer.body)
        code, detail = str(body.pop("code")), str(body.pop("detail", ""))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        # A proxy, or something that is no icecore at all.
        body, code, detail = {}, "not_icecore", bytes(answer.body[:200]).decode("utf-8", "replace")
    kind = LeaseLost if code == "lease_lost" else ProblemError
    field_ = body.pop("field", None)
    return kind(answer.status, code, detail, field_, body, answer.headers.get("retry-after"))


def json_body(value: Any) -> tuple[bytes, dict[str, str]]:
    return dumps(value), {"Content-Type": "application/json"}


def dumps(value: Any) -> bytes:
    """JSON as the API takes it: NaN and infinities are bare words."""
    return json.dumps(value, default=_default, separators=(",", ":")).encode()


def _default(value: Any) -> Any:
    # numpy's and torch's scalars and arrays, without importing either.
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "to_pylist"):
        return value.to_pylist()
    raise TypeError(f"{type(value).__name__} is no JSON value; use numbers, text, lists, dicts or numpy arrays")


def loads(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError as e:
        raise StreamError(f"read a JSON answer: {e}") from e


def segment(text: Any) -> str:
    """An id as one element of a path."""
    if not isinstance(text, str) or not text:
        raise ValueError(f"an id is a text of 1 to 128 bytes, not {text!r}")
    quoted = quote(text, safe="")
    # "." and ".." would be taken for steps in the path.
    return quoted.replace(".", "%2E") if quoted.strip(".") == "" else quoted
