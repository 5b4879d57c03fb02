"""How long a call's token lists take to encode, as JSON and as Arrow.

    python bench/encode.py [prompt tokens] [response tokens]

Prints one JSON line: milliseconds of the best of seven runs, and bytes.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from icecore import encode  # noqa: E402


def best(run: Callable[[], bytes]) -> tuple[float, int]:
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        size = len(run())
        seconds.append(time.perf_counter() - began)
    return round(min(seconds) * 1000, 3), size


def as_arrow(fields: dict[str, Any]) -> bytes:
    return encode.body([encode.Trace(fields)])[0]


def main(prompt: int = 8000, response: int = 2000) -> None:
    draw = random.Random(1)
    lists: dict[str, Any] = {
        "trace_id": "t",
        "rollout_id": "r",
        "prompt_token_ids": [draw.randrange(150_000) for _ in range(prompt)],
        "response_token_ids": [draw.randrange(150_000) for _ in range(response)],
        "response_logprobs": [-draw.random() for _ in range(response)],
    }
    arrays = {**lists, "response_logprobs": np.array(lists["response_logprobs"], np.float32)}
    for name in ("prompt_token_ids", "response_token_ids"):
        arrays[name] = np.array(lists[name], np.int32)
    runs = {
        "json_lists": lambda: encode.object_bytes(lists),
        "json_numpy": lambda: encode.object_bytes(arrays),
        "arrow_lists": lambda: as_arrow(lists),
        "arrow_numpy": lambda: as_arrow(arrays),
    }
    out: dict[str, Any] = {"prompt": prompt, "response": response}
    for name, run in runs.items():
        out[f"{name}_ms"], out[f"{name}_bytes"] = best(run)
    print(json.dumps(out))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
