"""The capture: a recording proxy between harness and engine.

A harness gets a base URL with its rollout in it, and nothing else changes for
it. Each call is announced before it is made, passed on with a wish for token
ids and log-probabilities, and written as a trace when the answer is there.
"""

from __future__ import annotations

import http.client
import json
import threading
from datetime import datetime, timezone
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

import jsonhttp

WISHES = {"logprobs": True, "return_token_ids": True}


class Capture(jsonhttp.Server):
    """Proxy in front of one engine. `writer` is that of the icecore client."""

    def __init__(self, engine_url: str, writer: Any) -> None:
        super().__init__()
        self._engine = urlsplit(engine_url).netloc
        self._writer = writer
        self._calls: dict[str, int] = {}
        self._own = threading.local()  # a connection for each thread

    def base_url(self, rollout_id: str) -> str:
        """Where the harness of this rollout finds its model."""
        self._calls[rollout_id] = 0
        return f"{self.url}/{rollout_id}/v1"

    def answer(self, path: str, body: Any, headers: Message) -> tuple[int, Any]:
        rollout_id, _, rest = path.lstrip("/").partition("/")
        if rest != "v1/chat/completions" or rollout_id not in self._calls:
            raise jsonhttp.NoSuchPath(path)
        self._calls[rollout_id] += 1  # a harness makes one call at a time
        seq = self._calls[rollout_id]
        trace_id = f"{rollout_id}.{seq}"
        began = _now()
        self._writer.begin(trace_id=trace_id, rollout_id=rollout_id, seq=seq, started_at=began)
        request = {**body, **WISHES}
        status, answer = self._ask("/" + rest, request, trace_id)
        trace = {"trace_id": trace_id, "rollout_id": rollout_id, "seq": seq, "api": "chat_completions",
                 "model": body.get("model"), "tokenizer": "characters", "sampling": {"temperature": body.get("temperature", 1)},
                 "started_at": began, "finished_at": _now(), "request": request, "response": answer}
        if status == 200:
            choice = answer["choices"][0]
            trace |= {"prompt_token_ids": answer["prompt_token_ids"], "response_token_ids": choice["token_ids"],
                      "response_logprobs": [entry["logprob"] for entry in choice["logprobs"]["content"]],
                      "policy_version": answer["policy_version"], "usage": answer["usage"],
                      "finish_reason": choice["finish_reason"],
                      "status": "aborted" if choice["finish_reason"] == "abort" else "ok"}
        else:
            trace |= {"status": "upstream_error", "error": json.dumps(answer)}
        self._writer.trace(trace)
        return status, answer

    def _ask(self, path: str, body: Any, request_id: str) -> tuple[int, Any]:
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection(self._engine, timeout=60)
        headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
        self._own.connection.request("POST", path, json.dumps(body), headers)
        answer = self._own.connection.getresponse()
        return answer.status, json.loads(answer.read())


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()
