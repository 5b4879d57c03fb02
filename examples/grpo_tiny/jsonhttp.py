"""JSON over HTTP with the standard library: what the engine and the capture listen with."""

from __future__ import annotations

import json
import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class NoSuchPath(Exception):
    """The request is for nothing that is served here."""


class Server:
    """Serves POST and GET of JSON on a free port of the loopback, each connection in a thread."""

    def __init__(self) -> None:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # One packet per answer: without both, each waits 40 ms for the other side.
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                try:
                    status, answer = owner.answer(self.path, json.loads(body or b"{}"), self.headers)
                except NoSuchPath as e:
                    status, answer = 404, {"error": {"message": f"no such path: {e}"}}
                except (ValueError, KeyError) as e:
                    status, answer = 400, {"error": {"message": f"read request: {e!r}"}}
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Threads(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self._http = Threads(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, path: str, body: Any, headers: Message) -> tuple[int, Any]:
        """Status and JSON for a request; to be overridden."""
        raise NotImplementedError

    def serve(self) -> None:
        """Serve until close()."""
        self._http.serve_forever(poll_interval=0.05)

    def start(self) -> None:
        """Serve in a thread of its own."""
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
