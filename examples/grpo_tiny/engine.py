"""The engine: chat completions in front of the policy, as vLLM serves them.

A process of its own. An answer carries token ids and log-probabilities when
`return_token_ids` and `logprobs` ask for them, in vLLM's places:
`prompt_token_ids`, `choices[].token_ids`, `choices[].logprobs.content[]`.

Each reply is sampled alone from the request's own seed, so what an engine
answers does not depend on what else it has to do: a run can be repeated.
Now and then a reply is broken off (finish_reason "abort"), as happens to real
engines when they preempt a request or change weights under it.

The engine writes a ledger of its own: a line of JSON per answer, of which
neither capture nor icecore knows. The checks compare with it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from email.message import Message
from pathlib import Path
from typing import Any

import torch

import jsonhttp
import policy

ABORTS = 0.02  # chance that a reply is broken off
LIMIT = 32  # most tokens of a reply, when the request says nothing


class Engine(jsonhttp.Server):
    def __init__(self, weights: Path, ledger: Path, version: int) -> None:
        super().__init__()
        self._weights = weights
        self._ledger = ledger.open("a")
        self._turn = threading.Lock()  # one reply at a time, and none while weights change
        self._load(version)

    def _load(self, version: int) -> None:
        self._policy, self._version = policy.load(self._weights, version), version

    def answer(self, path: str, body: Any, headers: Message) -> tuple[int, Any]:
        if path == "/v1/chat/completions":
            return 200, self._complete(body, headers.get("X-Request-Id") or f"chatcmpl-{random.getrandbits(64):016x}")
        if path == "/policy":  # the learner's way to say that it has moved on
            with self._turn:
                self._load(int(body["policy_version"]))
            return 200, {"policy_version": self._version}
        raise jsonhttp.NoSuchPath(path)

    def _complete(self, body: Any, request_id: str) -> Any:
        if body.get("temperature", 1) != 1:
            raise ValueError("temperature: this engine samples at 1 only")
        prompt = policy.render(body["messages"])
        seed = int(body.get("seed", random.getrandbits(48)))
        limit = int(body.get("max_tokens", LIMIT))
        luck = random.Random(f"{seed}/abort")
        broken_at = luck.randint(1, 2) if luck.random() < ABORTS else limit + 1
        with self._turn:
            version = self._version
            ids, logprobs = self._policy.sample(prompt, min(limit, broken_at), torch.Generator().manual_seed(seed))
            if ids[-1] == policy.END:
                finish = "stop"
            else:
                finish = "abort" if len(ids) == broken_at else "length"
            line = {"request_id": request_id, "policy_version": version, "prompt_token_ids": prompt,
                    "token_ids": ids, "logprobs": logprobs, "finish_reason": finish}
            self._ledger.write(json.dumps(line) + "\n")
            self._ledger.flush()
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish,
                                  "message": {"role": "assistant", "content": policy.decode(ids)}}
        answer = {"id": request_id, "object": "chat.completion", "model": body.get("model", "walker"),
                  "choices": [choice], "policy_version": version,
                  "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids),
                            "total_tokens": len(prompt) + len(ids)}}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": f"token_id:{i}", "logprob": p, "top_logprobs": []}
                                              for i, p in zip(ids, logprobs)]}
        if body.get("return_token_ids"):
            choice["token_ids"] = ids
            answer["prompt_token_ids"] = prompt
        return answer


def _close_at_end_of_input(engine: Engine) -> None:
    sys.stdin.read()
    engine.close()


def main(weights: str, ledger: str, version: str) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    engine = Engine(Path(weights), Path(ledger), int(version))
    print(engine.url, flush=True)
    # Ends with its parent, whatever becomes of that: nobody else holds its stdin.
    threading.Thread(target=_close_at_end_of_input, args=[engine], daemon=True).start()
    engine.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
