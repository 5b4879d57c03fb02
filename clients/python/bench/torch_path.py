"""How fast a delivered lease becomes arrays and tensors, against reading its Arrow stream alone.

Makes the stream of a lease in memory (rows of lognormal lengths, log-probs null on
context), then times, best of --rounds, single-threaded and on the same bytes:

    stream     pyarrow.ipc.open_stream(bytes).read_all(): views of the bytes
    touch      the same, and every byte of ids, mask and log-probs summed once
    numpy      stream, rows_of, and tokens, mask, log-probs of every row (NaN for null)
    torch      stream, rows_of, and to_tensors of all rows (one copy)
    torch_view the same with copy=False
    pack       stream, rows_of, and packs of --budget tokens

Prints one JSON line: seconds, and bytes of the stream per second.

    python bench/torch_path.py --rows 1000 --tokens 8192
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("src", "tests")]

from tables import SCHEMA, delivered, row  # noqa: E402

from icecore.packing import pack  # noqa: E402
from icecore.rows import rows_of  # noqa: E402


def stream(rows: int, tokens: int, batch_rows: int, seed: int) -> bytes:
    """The bytes of a lease of that many rows, tokens long on average, in several record batches."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(rng.lognormal(0, 0.5, rows) / np.exp(0.125) * tokens, 8).astype(int)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for start in range(0, rows, batch_rows):
            writer.write_table(_part(rng, lengths[start : start + batch_rows], start))
    return sink.getvalue().to_pybytes()


def _part(rng: np.random.Generator, lengths: Any, first: int) -> Any:
    """Lists are made by numpy, the other columns from a table of short rows."""
    short = delivered(
        row([1, 2], [0, 1], rollout_id=f"r-{first + i}", group_id=f"g-{(first + i) // 8}", advantage=0.5, trajectory_id=f"tr-{first + i}")
        for i in range(len(lengths))
    )
    total, offsets = int(lengths.sum()), pa.array(np.cumsum([0, *lengths]), pa.int32())
    mask = np.repeat(rng.random(total // 64 + 1) < 0.3, 64)[:total]  # turns of 64 tokens
    mask[offsets.to_numpy()[:-1]] = False
    values = {
        "token_ids": pa.array(rng.integers(0, 150_000, total, np.int32)),
        "loss_mask": pa.array(mask.astype(np.int8)),
        "logprobs": pa.array(-rng.random(total, np.float32), mask=~mask),
    }
    for name, each in values.items():
        kind = SCHEMA.field(name).type
        lists = pa.ListArray.from_arrays(offsets, each, type=kind)
        short = short.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), lists)
    return short.cast(SCHEMA)


def best(rounds: int, run: Callable[[], Any]) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=8192, help="of a row, on average")
    parser.add_argument("--batch-rows", type=int, default=64)
    parser.add_argument("--budget", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    data = pa.py_buffer(stream(asked.rows, asked.tokens, asked.batch_rows, asked.seed))

    def read() -> Any:
        return pa.ipc.open_stream(data).read_all()

    def touch() -> None:
        table = read()
        for name in ("token_ids", "loss_mask", "logprobs"):
            pc.sum(pc.list_flatten(table[name]))

    def arrays() -> None:
        for r in rows_of(read()):
            _ = r.tokens, r.mask, r.logprobs

    ways: dict[str, Callable[[], Any]] = {
        "stream": read,
        "touch": touch,
        "numpy": arrays,
        "pack": lambda: pack(rows_of(read()), asked.budget),
    }
    try:
        from icecore.tensors import to_tensors
    except ImportError:
        pass
    else:
        ways["torch"] = lambda: to_tensors(rows_of(read()))
        ways["torch_view"] = lambda: to_tensors(rows_of(read()), copy=False)
    seconds = {name: best(asked.rounds, run) for name, run in ways.items()}
    print(
        json.dumps(
            {
                "bench": "python_path",
                "rows": asked.rows,
                "tokens": pc.sum(pc.list_value_length(read()["token_ids"])).as_py(),
                "bytes": len(data),
                "seconds": {name: round(s, 6) for name, s in seconds.items()},
                "bytes_per_second": {name: round(len(data) / s) for name, s in seconds.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
