"""A tap between the gateway and the engine: bytes go through as they come, and are kept.

What the checks call the engine's own words is what this saw, and nothing of icecore.
"""

import http.client
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Call:
    """One request and what was answered. whole: the engine's answer came to its end."""

    def __init__(self, path: str, body: bytes):
        self.path, self.raw, self.status, self.answer, self.whole = path, body, 0, b"", False
        self.body = json.loads(body) if body else {}


class Tap:
    def __init__(self, engine: str):
        self.calls: list[Call] = []
        self.lock = threading.Lock()
        host = engine.removeprefix("http://")
        tap = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.pass_on()

            def do_POST(self):
                self.pass_on()

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                call = Call(self.path, body)
                with tap.lock:
                    tap.calls.append(call)
                up = http.client.HTTPConnection(host, timeout=300)
                try:
                    headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "accept-encoding")}
                    up.request(self.command, self.path, body or None, headers)
                    answer = up.getresponse()
                    call.status = answer.status
                    self.send_response(answer.status)
                    for k, v in answer.getheaders():
                        if k.lower() not in ("transfer-encoding", "content-length", "connection"):
                            self.send_header(k, v)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    while piece := answer.read1(1 << 16):
                        call.answer += piece
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.write(b"0\r\n\r\n")
                    call.whole = True
                except (OSError, http.client.HTTPException):
                    self.close_connection = True  # either side left: so does the other
                finally:
                    up.close()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def asked(self, trace_id: str) -> list[Call]:
        """The calls that were to sample for a trace, in order."""
        with self.lock:
            return [c for c in self.calls if c.body.get("request_id") == trace_id]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Sampled:
    """What the engine said of one choice, read without a line of icecore."""

    def __init__(self, call: Call, choice: int = 0):
        self.prompt: list[int] | None = None
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.text = self.reasoning = ""
        self.calls: list[dict] = []
        self.finish = self.usage = None
        self.chat = "chat" in call.path
        if call.body.get("stream"):
            for line in call.answer.decode().split("\n"):
                if line.startswith("data: ") and line != "data: [DONE]":
                    self.add(json.loads(line[6:]), choice)
        elif call.whole:
            self.add(json.loads(call.answer), choice)

    def add(self, chunk: dict, choice: int):
        self.usage = chunk.get("usage") or self.usage
        self.prompt = chunk.get("prompt_token_ids") or self.prompt
        for c in chunk.get("choices", []):
            self.prompt = c.get("prompt_token_ids") or self.prompt
            if c["index"] != choice:
                continue
            self.ids += c.get("token_ids") or []
            self.finish = c.get("finish_reason") or self.finish
            logs = c.get("logprobs") or {}
            self.logprobs += logs.get("token_logprobs") or [p["logprob"] for p in logs.get("content") or []]
            said = c.get("delta") or c.get("message") or {"content": c.get("text")}
            self.text += said.get("content") or ""
            self.reasoning += said.get("reasoning") or ""
            for call in said.get("tool_calls") or []:
                at = call.get("index", len(self.calls))
                while len(self.calls) <= at:
                    self.calls.append({"name": "", "arguments": ""})
                for name in ("name", "arguments"):
                    self.calls[at][name] += call["function"].get(name) or ""


def wait_for(url: str, alive, seconds: float):
    """Wait until url answers 200."""
    host = url.removeprefix("http://").split("/", 1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        alive()
        try:
            c = http.client.HTTPConnection(host[0], timeout=5)
            c.request("GET", "/" + host[1])
            if c.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} did not answer within {seconds} s")
