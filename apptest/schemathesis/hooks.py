"""What schemathesis has to know of the media types that it does not have."""

import hashlib
import io
import json

import pyarrow as pa
import pyarrow.parquet
import schemathesis


@schemathesis.hook
def map_body(ctx, body):
    """The server takes whole numbers that are written with digits only. JSON Schema, to which 1.0 is one too, cannot
    say that. A lease is not waited for: minutes would pass."""
    if isinstance(body, dict) and isinstance(body.get("wait_seconds"), (int, float)):
        body = {**body, "wait_seconds": min(body["wait_seconds"], 0.01)}
    return whole(body)


def whole(value):
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return value


@schemathesis.serializer("application/x-ndjson")
def write_lines(ctx, value):
    """The document's array stands for the lines."""
    if isinstance(value, list):
        return b"".join(json.dumps(item).encode() + b"\n" for item in value)
    return json.dumps(value).encode()


@schemathesis.deserializer("application/x-ndjson")
def read_lines(ctx, response):
    return [json.loads(line) for line in response.content.splitlines()]


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def write_arrow(ctx, value):
    """The document has no schema for these bytes: whatever is generated goes into one column of a trace."""
    text = json.dumps({"value": repr(value)})
    name = hashlib.sha256(text.encode()).hexdigest()
    rows = pa.table({"trace_id": [name], "rollout_id": ["arrow"], "metadata": [text]})
    body = pa.BufferOutputStream()
    with pa.ipc.new_stream(body, rows.schema) as stream:
        stream.write_table(rows)
    return body.getvalue().to_pybytes()


@schemathesis.deserializer("application/vnd.apache.arrow.stream")
def read_arrow(ctx, response):
    return pa.ipc.open_stream(response.content).read_all().to_pylist()


@schemathesis.deserializer("application/vnd.apache.parquet")
def read_parquet(ctx, response):
    return pa.parquet.read_table(io.BytesIO(response.content)).to_pylist()


@schemathesis.deserializer("text/csv", "application/vnd.google.protobuf")
def leave(ctx, response):
    return response.text
