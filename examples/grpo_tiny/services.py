"""The two processes that a run needs, started on free ports and ended with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


@contextmanager
def icecore_server(binary: Path, directory: Path) -> Iterator[str]:
    """An icecore server with a data directory of its own; gives its address."""
    log = directory / "icecore.log"
    command = [str(binary), "serve", "--data", str(directory / "data"), "--listen", "127.0.0.1:0", "--log-level", "warn"]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            yield _address(process, "icecore", log)
        finally:
            process.terminate()  # it drains and closes
            process.wait()


@contextmanager
def engine(weights: Path, ledger: Path, version: int) -> Iterator[str]:
    """The engine with the weights of a version; gives its address."""
    log = ledger.with_suffix(".log")
    command = [sys.executable, str(HERE / "engine.py"), str(weights), str(ledger), str(version)]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            yield _address(process, "the engine", log)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # it ends with its standard input
            process.wait()


def _address(process: subprocess.Popen[str], what: str, log: Path) -> str:
    """The address on the first line that a server prints."""
    assert process.stdout is not None
    for word in process.stdout.readline().split():
        if word.startswith("http://"):
            return word
    process.wait()
    raise RuntimeError(f"start {what}: it ended with status {process.returncode}:\n{log.read_text()}")
