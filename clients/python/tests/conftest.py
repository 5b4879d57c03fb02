"""The real server for tests: the binary named by ICECORE_BINARY, or bin/icecore of
this repository, on any free port, with a data directory of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import icecore

# No bounds by the clock, and no examples left in a directory.
hypothesis.settings.register_profile("icecore", deadline=None, database=None)
hypothesis.settings.load_profile("icecore")

ROOT = Path(__file__).resolve().parents[3]
LISTENS = re.compile(r"icecore listens on (http://\S+)")


def binary() -> Path:
    path = Path(os.environ.get("ICECORE_BINARY") or ROOT / "bin" / "icecore")
    if not path.exists():
        pytest.fail(f"{path} is not there: run make build, or name a binary in ICECORE_BINARY")
    return path


class Server:
    """A server process that can be stopped, killed and started again in place."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory = directory
        self.flags = flags
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Server:
        # The first start takes any port, later ones the same again.
        listen = self.url.removeprefix("http://") or "127.0.0.1:0"
        with open(self.directory / "log", "a") as log:
            self.process = subprocess.Popen(
                [binary(), "serve", "--data", self.directory / "data", "--listen", listen, *self.flags],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := LISTENS.search(line):
                self.url = found[1]
                return self
        raise AssertionError(f"the server did not start:\n{(self.directory / 'log').read_text()}")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    running = Server(tmp_path).start()
    yield running
    running.kill()


@pytest.fixture
def client(server: Server) -> Iterator[icecore.Client]:
    with icecore.Client(server.url, timeout=30.0) as c:
        yield c


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that the tests of a module share: they use ids of their own."""
    running = Server(tmp_path_factory.mktemp("server")).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def shared_client(shared_server: Server) -> Iterator[icecore.Client]:
    with icecore.Client(shared_server.url, timeout=30.0) as c:
        yield c
