"""The two servers: vLLM on the tiny model, and icecore before it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tap import wait_for

# One model under many names: what each is asked for stands in the gateway's settings.
WORDS = "[a-z]{2,8}( [a-z]{2,8}){3,9}[.]"
CALL = r'<tool_call>\n\{"name": "read_file", "arguments": \{"path": "[a-z]{1,9}[.]py"\}\}\n</tool_call>'
SHAPES = {
    "noise": None,  # whatever comes
    "endless": None,  # the same, and only its length ends it
    "words": WORDS,
    "thinks": rf"<think>\n{WORDS}\n</think>\n\n{WORDS}",
    "calls": rf"<think>\n{WORDS}\n</think>\n\n({WORDS}\n)?{CALL}(\n{CALL})?",
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    def __init__(self, name: str, command: list[str], log: Path, env: dict | None = None):
        self.name, self.log = name, log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)

    def alive(self):
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def vllm(directory: Path, model: Path) -> tuple[Process, str]:
    port = free_port()
    env = os.environ | {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CACHE_ROOT": str(directory / "cache"), "HOME": str(directory),
    }
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1",
        "--port", str(port), "--dtype", "float32", "--enforce-eager", "--enable-scale-out",
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
        "--logprobs-mode", "processed_logprobs", "--structured-outputs-config", '{"enable_in_reasoning": true}',
        "--served-model-name", *(f"{shape}{how}" for shape in SHAPES for how in ("", "-exact")),
    ]
    p = Process("vLLM", command, directory / "vllm.log", env)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url + "/health", p.alive, 900)
    except BaseException:
        p.stop()
        raise
    return p, url


def spelled(model: Path) -> list[int]:
    """Ids that could spell a mark, where the token of that name is wanted: vLLM knows
    thinking by its ids."""
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    return [i for token, i in vocabulary.items() if "<" in token and token not in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")]


def icecore(binary: str, directory: Path, model: Path, engine: str) -> tuple[Process, str]:
    models = {}
    for shape, regex in SHAPES.items():
        params = {}
        if regex:
            params = {"structured_outputs": {"regex": regex}, "logit_bias": {str(i): -100 for i in spelled(model)}}
        if shape == "endless":
            params["ignore_eos"] = True
        if shape == "words":  # or vLLM's parser takes what has no <think> for thinking
            params["chat_template_kwargs"] = {"enable_thinking": False}
        for how in ("off", "exact_text"):
            models[shape + ("-exact" if how != "off" else "")] = {
                "continuity": how, "params": params, "reasoning_parser": "think", "tool_parser": "hermes",
                "logprobs_mode": "processed_logprobs",
            }
    settings = directory / "gateway.yaml"
    settings.write_text(json.dumps({"engines": [{"url": engine, "name": "vllm"}], "models": models}))
    port = free_port()
    p = Process("icecore", [binary, "serve", "--data", str(directory / "data"), "--listen", f"127.0.0.1:{port}",
                            "--gateway", str(settings)], directory / "icecore.log")
    url = f"http://127.0.0.1:{port}"
    wait_for(url + "/readyz", p.alive, 60)
    return p, url
