"""Writing: requests, the order in which they may go, and what their answers mean.
The writers (writer.py, aio.py) add threads and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from . import encode
from ._http import ARROW, Answer, Call, Steps, loads, segment
from .encode import Trace
from .errors import DataError, IngestError, ProblemError, Refused, StreamError
from .prefix import Prefixes

# What one request of a direct call holds at most, well under the server's limits.
MOST_ITEMS, MOST_BYTES = 2000, 16 << 20

# Answers to a whole request for which one of its items may be the cause.
ITEM_FAULTS = frozenset({400, 409, 413, 422})

# What a direct call takes: items, or one.
Items = Iterable[Mapping[str, Any]] | Mapping[str, Any]

PATHS = {"trace": "/v1/traces", "begin": "/v1/traces/begin", "reward": "/v1/rewards", "logprobs": "/v1/trajectories/logprobs"}


@dataclass(frozen=True)
class Item:
    """The server's word on one item. ``status``: ``stored``, ``duplicate`` (it was
    there already, which is success) or ``refused``, then with ``code`` and
    ``message``. ``warnings``: what was understood otherwise than perhaps meant."""

    index: int
    id: str | None
    status: str
    code: str | None = None
    message: str | None = None
    warnings: tuple[str, ...] = ()


class Entry:
    """Something to be written, in the order in which it was given."""

    __slots__ = ("index", "kind", "id", "rollout", "value", "size")

    def __init__(self, index: int, kind: str, value: Any, id: str | None, rollout: str, size: int) -> None:
        self.index = index
        self.kind = kind
        self.value = value
        self.id = id
        self.rollout = rollout
        self.size = size

    @property
    def lane(self) -> str:
        """Entries of one lane can go in one request."""
        return "plain trace" if self.kind == "trace" and self.value.json is not None else self.kind


def entry(index: int, kind: str, fields: Mapping[str, Any]) -> Entry:
    """Takes an item from the caller; raises TypeError when it cannot be written as
    JSON."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"a {kind} is a dict of its fields, not {type(fields).__name__}")
    rollout = str(fields.get("rollout_id", ""))
    if kind == "trace":
        trace = Trace(fields)
        return Entry(index, kind, trace, text(trace.id), rollout, trace.size)
    if kind in ("rollout", "finish"):
        segment(fields.get("rollout_id"))  # raises here, not in a writer's thread
    name = {"begin": "trace_id", "reward": "reward_id"}.get(kind, "rollout_id")
    value = encode.object_bytes({k: v for k, v in fields.items() if kind not in ("rollout", "finish") or k != "rollout_id"})
    return Entry(index, kind, value, text(fields.get(name)), rollout, len(value) + 64)


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def waves(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Splits entries into requests of one lane each, so few as the order within each
    rollout allows."""
    left = list(entries)
    out: list[list[Entry]] = []
    while left:
        lane, wave, later, held = left[0].lane, [], [], set()
        for e in left:
            if e.lane == lane and e.rollout not in held:
                wave.append(e)
            else:
                later.append(e)
                held.add(e.rollout)
        out.append(wave)
        left = later
    return out


Verdict = Callable[[Entry, Item], None]


def deliver(entries: Iterable[Entry], verdict: Verdict, prefixes: Prefixes | None = None, ack: str | None = None) -> Steps[None]:
    """Writes entries, and tells ``verdict`` what became of each. What the whole
    request is refused for is looked for in halves of it."""
    for wave in waves(entries):
        if wave[0].kind in ("rollout", "finish"):
            for e in wave:
                yield from one(e, verdict, ack)
                if e.kind == "finish" and prefixes is not None:
                    prefixes.forget(e.rollout)
            continue
        if wave[0].kind == "trace" and prefixes is not None:
            for e in wave:
                prefixes.shorten(e.value)
        again: list[Entry] = []

        def judged(e: Entry, item: Item) -> None:
            if item.code == "unknown_prefix" and e.kind == "trace" and e.value.prefix is not None:
                e.value.whole()
                again.append(e)
            else:
                verdict(e, item)

        yield from many(wave, judged, ack)
        if again:
            yield from many(again, verdict, ack)


def many(entries: list[Entry], verdict: Verdict, ack: str | None) -> Steps[None]:
    parts = [entries]
    while parts:
        part = parts.pop()
        try:
            items = yield items_call(part, ack)
        except ProblemError as problem:
            if problem.status not in ITEM_FAULTS:
                raise
            if len(part) > 1:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
            else:
                verdict(part[0], Item(0, part[0].id, "refused", problem.code, problem.detail))
            continue
        for e, item in zip(part, items):
            verdict(e, item)


def one(e: Entry, verdict: Verdict, ack: str | None) -> Steps[None]:
    try:
        answer = yield rollout_call(e.kind, e.id or "", e.value, ack)
    except ProblemError as problem:
        if problem.status not in ITEM_FAULTS:
            raise
        verdict(e, Item(0, e.id, "refused", problem.code, problem.detail))
    else:
        verdict(e, Item(0, e.id, str(answer.get("status", "stored"))))


def items_call(entries: Sequence[Entry], ack: str | None) -> Call[list[Item]]:
    kind = entries[0].kind
    if kind == "trace":
        content, headers = encode.body([e.value for e in entries])
    else:
        content, headers = b"[" + b",".join(e.value for e in entries) + b"]", {"Content-Type": "application/json"}
    return Call("POST", PATHS[kind], items_parser(len(entries)), {"ack": ack}, headers, content, items=True)


def items_parser(count: int) -> Callable[[Answer], list[Item]]:
    def parse(answer: Answer) -> list[Item]:
        items = [item_of(i) for i in loads(answer)["items"]]
        if len(items) != count or any(item.index != i for i, item in enumerate(items)):
            raise StreamError(f"{count} items were sent, and {len(items)} answered, or in another order: send them again")
        for item in items:
            if item.status not in ("stored", "duplicate", "refused"):
                raise StreamError(f"item {item.index} is answered as {item.status!r}, which says neither that it is stored nor that it is refused")
        return items

    return parse


def item_of(said: Mapping[str, Any]) -> Item:
    return Item(
        int(said["index"]), said.get("id"), str(said["status"]), said.get("code"), said.get("message"), tuple(said.get("warnings") or ())
    )


def rollout_call(kind: str, rollout_id: str, content: bytes, ack: str | None = None) -> Call[dict[str, Any]]:
    method, path = ("PUT", "") if kind == "rollout" else ("POST", "/finish")
    headers = {"Content-Type": "application/json"}
    return Call(method, f"/v1/rollouts/{segment(rollout_id)}{path}", loads, {"ack": ack}, headers, content)


def post(kind: str, items: Items, allow_refused: bool, ack: str | None) -> Steps[list[Item]]:
    """A direct call: any number of items, in as many requests as it takes."""
    given: Iterable[Mapping[str, Any]] = [items] if isinstance(items, Mapping) else items
    entries = [entry(i, kind, fields) for i, fields in enumerate(given)]
    found: dict[int, Item] = {}

    def verdict(e: Entry, item: Item) -> None:
        found[e.index] = Item(e.index, item.id, item.status, item.code, item.message, item.warnings)

    for part in portions(entries, MOST_ITEMS, MOST_BYTES):
        yield from deliver(part, verdict, None, ack)
    return checked(kind, [found[i] for i in range(len(entries))], allow_refused)


def portions(entries: Sequence[Entry], most_items: int, most_bytes: int) -> list[list[Entry]]:
    out: list[list[Entry]] = []
    size = 0
    for e in entries:
        if not out or len(out[-1]) >= most_items or size + e.size > most_bytes:
            out.append([])
            size = 0
        out[-1].append(e)
        size += e.size
    return out


def _refusal(refused: int, of: int) -> str:
    if refused == of:
        return "the item was refused" if of == 1 else f"all {of} items were refused"
    return f"{refused} of {of} items {'was' if refused == 1 else 'were'} refused, the others are stored"


def checked(kind: str, items: list[Item], allow_refused: bool) -> list[Item]:
    refused = [refusal(kind, item) for item in items if item.status == "refused"]
    if refused and not allow_refused:
        raise IngestError(_refusal(len(refused), len(items)), refused)
    return items


def refusal(kind: str, item: Item, index: int | None = None) -> Refused:
    return Refused(item.index if index is None else index, kind, item.id, item.code or "refused", item.message or "")


def logprobs(posted: Mapping[str, Any], policy_version: int, allow_refused: bool) -> Steps[list[Item]]:
    """The learner's log-probabilities, as Arrow, some megabytes at a time."""
    ids = list(posted)
    arrays = []
    for i in ids:
        try:
            array = encode.token_array(posted[i], pa.float32())
        except encode.Plain as e:
            raise DataError(f"log-probs of {i}: one row of numbers is wanted (a tensor: detach it, on the CPU, float): {e.__cause__}") from e
        arrays.append(array)
    out: list[Item] = []
    start = 0
    while start < len(ids):
        end, size = start, 0
        while end < len(ids) and end - start < MOST_ITEMS and (end == start or size + arrays[end].nbytes <= MOST_BYTES):
            size += arrays[end].nbytes
            end += 1
        items = yield logprobs_call(ids[start:end], arrays[start:end], policy_version)
        out += [Item(start + i.index, i.id, i.status, i.code, i.message, i.warnings) for i in items]
        start = end
    return checked("logprobs", out, allow_refused)


def logprobs_call(ids: list[str], arrays: list[pa.Array], policy_version: int) -> Call[list[Item]]:
    table = pa.table({
        "trajectory_id": pa.array(ids, pa.string()),
        "policy_version": pa.array(np.full(len(ids), policy_version, np.int64)),
        "logprobs": encode.list_column(arrays, pa.float32()),
    })
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Call("POST", PATHS["logprobs"], items_parser(len(ids)), {}, {"Content-Type": ARROW}, sink.getvalue().to_pybytes(), items=True)

