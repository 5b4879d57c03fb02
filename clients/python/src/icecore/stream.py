"""Arrow streams of the server, read so that none that was cut passes for whole.

A stream can end early at a place where readers see nothing wrong (between two
messages), so four things are demanded: the transport saw the end of the body, the
body ends with the stream's end marker, pyarrow reads it up to there, and its rows
are as many as the headers said before the first byte. (The server also sends the
trailer Icecore-Complete; httpx does not show trailers.)
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ._http import ARROW, Answer
from .errors import StreamError

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def accept(codec: str | None) -> str:
    """The Accept header. ``codec``: ``zstd``, ``lz4``, or None for plain buffers."""
    if codec not in (None, "zstd", "lz4"):
        raise ValueError(f"codec is 'zstd', 'lz4' or None, not {codec!r}")
    return f'{ARROW}; codecs="{codec}"' if codec else ARROW


def read(answer: Answer, rows: str = "rows") -> pa.Table:
    """The table of an answer. Its buffers are slices of ``answer.body`` (unless they
    were compressed), and read-only. ``rows``: name of the count of rows among the
    headers (``Icecore-Rows``) and in the metadata (``icecore.rows``)."""
    body = answer.body
    if body[-len(END) :] != END:
        raise broken(answer, "it has no end marker")
    source = pa.BufferReader(pa.py_buffer(memoryview(body).toreadonly()))
    try:
        with pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        table.validate()
    except (pa.ArrowException, OSError, ValueError) as e:
        raise broken(answer, f"it cannot be read: {e}") from e
    if source.tell() != len(body):
        raise broken(answer, f"{len(body) - source.tell()} bytes stand behind its end")
    expect(answer, "rows", promised(answer, metadata(table), rows), table.num_rows)
    return table


def read_rows(answer: Answer) -> pa.Table:
    """As read, for trajectories: tokens, trained tokens and rollouts are counted
    too, and the three token lists of each row must have one length."""
    table = read(answer)
    meta = metadata(table)
    lengths = pc.list_value_length(table["token_ids"])
    for column in ("loss_mask", "logprobs"):
        if not pc.list_value_length(table[column]).equals(lengths):
            raise broken(answer, f"{column} and token_ids differ in length")
    expect(answer, "tokens", promised(answer, meta, "tokens"), pc.sum(lengths).as_py() or 0)
    expect(answer, "trained tokens", promised(answer, meta, "trained_tokens"), pc.sum(table["trained_tokens"]).as_py() or 0)
    expect(answer, "rollouts", promised(answer, meta, "rollouts"), pc.count_distinct(table["rollout_id"]).as_py())
    return table


def metadata(table: pa.Table) -> dict[str, str]:
    """``icecore.*`` of the schema's metadata, without the prefix."""
    found: Mapping[bytes, bytes] = table.schema.metadata or {}
    return {k.decode()[8:]: v.decode() for k, v in found.items() if k.startswith(b"icecore.")}


def promised(answer: Answer, meta: Mapping[str, str], name: str) -> int:
    """A count that header and metadata name; they must agree."""
    header = answer.headers.get("icecore-" + name.replace("_", "-"))
    said = {v for v in (header, meta.get(name)) if v is not None}
    if len(said) != 1:
        raise broken(answer, f"header and metadata say {header} and {meta.get(name)} {name}")
    try:
        return int(said.pop())
    except ValueError as e:
        raise broken(answer, f"{name} is no number") from e


def expect(answer: Answer, what: str, promised: int, came: int) -> None:
    if promised != came:
        raise broken(answer, f"{promised} {what} were promised and {came} came")


def broken(answer: Answer, why: str) -> StreamError:
    return StreamError(
        f"the Arrow stream of {len(answer.body)} bytes is not whole: {why}",
        answer.headers.get("icecore-lease-id"),
        answer.headers.get("icecore-key"),
    )
