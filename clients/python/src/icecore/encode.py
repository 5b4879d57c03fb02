"""Traces as bytes: an Arrow stream, or JSON for what Arrow columns cannot hold.

Token lists decide the cost. A call of 8,000 + 2,000 tokens given as lists takes 0.6 ms
as Arrow and 1.9 ms as JSON, given as numpy arrays 0.2 ms and 2.0 ms, and as Arrow has
half the bytes (bench/encode.py, two cores). So everything goes as Arrow that can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._http import ARROW, dumps

Tokens = npt.NDArray[np.int32]

TOKENS = {"prompt_token_ids": pa.int32(), "response_token_ids": pa.int32(), "response_logprobs": pa.float32()}
VERSION_SPANS = pa.list_(pa.struct([("start", pa.int64()), ("version", pa.int64())]))
PREFIX = pa.struct([("trace_id", pa.string()), ("length", pa.int64())])
# The fields of a trace (wire: POST /v1/traces) by the type that a value must have to
# travel in a column.
TEXT = frozenset(
    "trace_id rollout_id status finish_reason choice_group kind task_id group_id harness harness_version model tokenizer api "
    "parent_rollout_id chat_template_hash tools_hash error prompt_hash".split()
)
WHOLE = frozenset("seq policy_version choice_index sample_index".split())
TIMES = frozenset("started_at first_token_at finished_at".split())
OBJECTS = frozenset("sampling usage metadata".split())
BODIES = frozenset("request response".split())


class Plain(Exception):
    """A value that no column can hold: the trace goes as JSON."""


class Trace:
    """A trace as taken from the caller: nothing of it is shared with what the caller
    may change later.

    ``prompt``: int32 [P] or None. ``size``: about its bytes on the wire, whole.
    ``prefix``: (trace_id, length) when only the rest of the prompt is sent.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.id = fields.get("trace_id")
        self.rollout = str(fields.get("rollout_id", ""))
        self.prefix: tuple[str, int] | None = None
        self.hash: str | None = None
        self.columns: dict[str, Any] = {}
        self.json: bytes | None = None
        given = {k: v for k, v in fields.items() if v is not None}
        try:
            for name, value in given.items():
                self.columns[name] = column_value(name, value)
        except Plain:
            self.columns = {}
            self.json = object_bytes(given)
        tokens = (a.nbytes for a in (self.columns.get(n) for n in TOKENS) if a is not None)
        texts = (len(v) for v in self.columns.values() if isinstance(v, (str, bytes)))
        self.size = 64 + (len(self.json) if self.json is not None else sum(tokens) + sum(texts))

    @property
    def prompt(self) -> Tokens | None:
        return self._ids("prompt_token_ids") if "prompt_prefix" not in self.columns else None

    @property
    def sequence(self) -> Tokens | None:
        """Prompt and response, int32 [P + R]."""
        prompt, response = self.prompt, self._ids("response_token_ids")
        if prompt is None:
            return None
        return prompt if response is None else np.concatenate([prompt, response])

    def _ids(self, name: str) -> Tokens | None:
        column = self.columns.get(name)
        return None if column is None else column.to_numpy(zero_copy_only=True)

    def shorten(self, trace_id: str, length: int) -> None:
        """Sends only what follows the first ``length`` ids, which are those of that
        trace's prompt and response."""
        prompt = self.prompt
        assert prompt is not None
        self.prefix = (trace_id, length)
        self.hash = hashlib.sha256(np.ascontiguousarray(prompt, dtype="<i4").data).hexdigest()

    def whole(self) -> None:
        """Undoes shorten."""
        self.prefix, self.hash = None, None

    def wire(self) -> dict[str, Any]:
        """The columns to be sent."""
        if self.prefix is None:
            return self.columns
        trace_id, length = self.prefix
        return {
            **self.columns,
            "prompt_token_ids": self.columns["prompt_token_ids"].slice(length),
            "prompt_prefix": {"trace_id": trace_id, "length": length},
            # The caller's own hash is a check that must not be lost.
            "prompt_hash": self.columns.get("prompt_hash", self.hash),
        }


def column_value(name: str, value: Any) -> Any:
    if name in TOKENS:
        return token_array(value, TOKENS[name])
    kind = type(value)
    if name in TEXT:
        if kind is not str or not encodable(value):
            raise Plain
        return value
    if name in WHOLE:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not -(2**63) <= value < 2**63:
            raise Plain
        return int(value)
    if name in TIMES:
        value = value.isoformat() if hasattr(value, "isoformat") else value
        if not isinstance(value, str) or not encodable(value):
            raise Plain
        return value
    if name in OBJECTS:
        if not isinstance(value, Mapping):
            raise Plain
        return dumps(value).decode()
    if name in BODIES:
        return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else dumps(value)
    if name == "ids_incomplete" and isinstance(value, bool):
        return value
    if name in ("policy_version_spans", "prompt_prefix"):
        try:
            return pa.scalar(value, VERSION_SPANS if name == "policy_version_spans" else PREFIX).as_py()
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise Plain from e
    raise Plain


def token_array(value: Any, kind: pa.DataType) -> pa.Array:
    """A list, numpy array, torch tensor or pyarrow array as an Arrow array: of ids
    without nulls, of log-probs with null for None and NaN for NaN."""
    try:
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        if isinstance(value, pa.Array):
            array = value.cast(kind)
        elif isinstance(value, (list, tuple)):
            if value and isinstance(value[0], (bool, str)):
                raise Plain
            array = pa.array(value, kind)
        else:
            array = pa.array(np.array(value), kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, RuntimeError) as e:
        raise Plain from e
    if kind == pa.int32() and array.null_count:
        raise Plain
    return array


def encodable(text: str) -> bool:
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False


def object_bytes(fields: Mapping[str, Any]) -> bytes:
    """A JSON object; request and response given as bytes stand in it as they are."""
    members = []
    for name, value in fields.items():
        raw = name in BODIES and isinstance(value, (bytes, bytearray, memoryview))
        members.append(dumps(name) + b":" + (bytes(value) if raw else dumps(value)))
    return b"{" + b",".join(members) + b"}"


def body(traces: Sequence[Trace]) -> tuple[bytes, dict[str, str]]:
    """One request for traces that are all Arrow, or all JSON."""
    if traces[0].json is not None:
        return b"[" + b",".join(t.json or b"" for t in traces) + b"]", {"Content-Type": "application/json"}
    rows = [t.wire() for t in traces]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: column(name, [row.get(name) for row in rows]) for name in names})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes(), {"Content-Type": ARROW}


def column(name: str, values: list[Any]) -> pa.Array:
    if name in TOKENS:
        return list_column(values, TOKENS[name])
    if name in WHOLE:
        return pa.array(values, pa.int64())
    if name in BODIES:
        return pa.array(values, pa.binary())
    if name == "ids_incomplete":
        return pa.array(values, pa.bool_())
    if name == "policy_version_spans":
        return pa.array(values, VERSION_SPANS)
    if name == "prompt_prefix":
        return pa.array(values, PREFIX)
    return pa.array(values, pa.string())


def list_column(values: Sequence[pa.Array | None], kind: pa.DataType) -> pa.ListArray:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if v is None else len(v) for v in values], out=offsets[1:])
    present = [v for v in values if v is not None]
    items = pa.concat_arrays(present) if present else pa.array([], kind)
    missing = pa.array([v is None for v in values])
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=missing)
