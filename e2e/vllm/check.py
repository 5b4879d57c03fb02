"""Set what is stored against what the engine said."""

import json
import struct

from scenes import Client
from tap import Call, Sampled, Tap

CAPTURE = {"return_token_ids", "logprobs", "request_id"}


def bits(values) -> bytes:
    return struct.pack(f"{len(values)}f", *values)


def valid(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


class Checker:
    def __init__(self, icecore: str, engine: str, tap: Tap):
        self.icecore, self.engine, self.tap = Client(icecore), Client(engine), tap
        self.faults: list[str] = []
        self.checked = self.spliced = self.tokens = self.parsed = 0

    def fault(self, where: str, what: str):
        self.faults.append(f"{where}: {what}")

    def get(self, path: str):
        return self.icecore.get(path)

    def trace(self, where: str, trace_id: str, api: str = "", heard=None, tools=False, ended="ok"):
        """Check one trace of a call. heard is what the client understood of its answer."""
        self.checked += 1
        t = self.get(f"/v1/traces/{trace_id}?include=bodies")
        meta, calls = t["metadata"]["gateway"], self.tap.asked(trace_id)
        bad = lambda what: self.fault(f"{where} ({trace_id})", what)  # noqa: E731
        if [c.status for c in calls] != [200]:
            bad(f"the engine was asked {len(calls)} times: {[(c.status, c.answer[:300]) for c in calls if c.status != 200]}")
            if not calls:
                return t
        call = calls[-1]
        said = Sampled(call)
        self.tokens += len(said.ids)
        if lost := CAPTURE - set(call.body):
            bad(f"the engine was not asked for {lost}")
        flags = set(meta.get("flags", []))
        if any(not valid(c["arguments"]) for c in said.calls) or not said.chat and t.get("finish_reason") == "length":
            flags -= {"invalid_arguments"}  # a call was cut, and the engine's parser gave it all the same
        if flags or t.get("ids_incomplete"):
            bad(f"flags {flags}, ids_incomplete {t.get('ids_incomplete')}")
        if t["status"] != ended:
            bad(f"status {t['status']}, want {ended}: {t.get('error')}")
        if said.prompt is None or t.get("prompt_token_ids") != said.prompt:
            bad("the prompt's ids are not those that the engine read")
        got = t.get("response_token_ids", [])
        if ended == "ok" and got != said.ids or got != said.ids[: len(got)]:
            bad(f"the ids are not those that were sampled: {got} {said.ids}")
        if len(said.ids) != len(said.logprobs) or bits(t.get("response_logprobs", [])) != bits(said.logprobs[: len(got)]):
            bad("the log-probabilities are not the engine's, bit for bit")
        if ended == "ok":
            self.end(bad, t, said, call, heard)
            self.prompt(bad, t, said, call, api)
            self.parsers(bad, t, said, call, api, heard, tools)
        return t

    def end(self, bad, t, said: Sampled, call: Call, heard):
        finish = said.finish
        if not said.chat and finish == "stop" and heard and heard[2]:
            finish = "tool_calls"
        if t["finish_reason"] != finish:
            bad(f"finish_reason {t['finish_reason']}, the engine's is {said.finish}")
        for name in ("prompt_tokens", "completion_tokens"):
            if t["usage"].get(name) != said.usage[name]:
                bad(f"{name} {t['usage'].get(name)}, the engine's is {said.usage[name]}")
        if said.usage["completion_tokens"] != len(said.ids):
            bad(f"the engine counts {said.usage['completion_tokens']} tokens and tells {len(said.ids)}")
        if t["sampling"].get("logprobs_mode") not in ("processed_logprobs",):
            bad(f"sampling {t['sampling']}")

    def verify(self):
        """icecore's own witness walks over all that is stored; and splices there were."""
        found, _ = self.icecore.post("/v1/verify", {})
        if found["findings"]:
            self.fault("verify", str(found["findings"][:3]))
        if not self.spliced:
            self.fault("continuity", "nothing was spliced")

    def render(self, body: dict) -> list[int]:
        keep = {k: body[k] for k in ("model", "messages", "tools", "chat_template_kwargs") if k in body}
        # /tokenize knows thinking by one name alone, where chat knows both.
        keep["messages"] = [{"reasoning" if k == "reasoning_content" else k: v for k, v in m.items()} for m in keep["messages"]]
        return self.engine.post("/tokenize", keep | {"add_generation_prompt": True})[0]["tokens"]

    def decode(self, model: str, ids: list[int]) -> str:
        return self.engine.post("/detokenize", {"model": model, "tokens": ids})[0]["prompt"]

    def prompt(self, bad, t, said: Sampled, call: Call, api: str):
        """The prompt is what the engine's own template makes of the messages; of a spliced
        one that is so of the text."""
        spliced = t["metadata"]["gateway"]["continuity"]["spliced"]
        if spliced == said.chat:
            bad(f"spliced is {spliced}, and the engine was asked at {call.path}")
        if not spliced:
            if self.render(call.body) != said.prompt:
                bad("/tokenize of the same messages gives other ids than the engine read")
            return
        self.spliced += 1
        if call.body["prompt"] != said.prompt:
            bad("the engine read other ids than it was given")
        if api == "chat":
            asked = self.render(t["request"] | {"model": call.body["model"]})
            if self.decode(call.body["model"], asked) != self.decode(call.body["model"], said.prompt):
                bad("the spliced prompt is another text than what the harness asked for")

    def parsers(self, bad, t, said: Sampled, call: Call, api: str, heard, tools):
        """What the harness got is what the engine's parsers make of the sampled ids."""
        if heard is None:
            return
        text, thought, calls, _ = heard
        if not said.chat and api == "chat":
            request = t["request"] | {"model": call.body["model"], "stream": False}
            if kwargs := next((c.body["chat_template_kwargs"] for c in self.tap.calls if c.body.get("model") == call.body["model"]
                               and "chat_template_kwargs" in c.body), None):
                request["chat_template_kwargs"] = kwargs
            ids = said.ids[:-1] if said.finish == "stop" else said.ids  # the turn's end is no text
            answer, _ = self.engine.post("/v1/chat/completions/derender", {
                "model": call.body["model"], "prompt_token_ids": said.prompt, "chat_request": request,
                "generate_response": {"request_id": "x", "choices": [{"index": 0, "token_ids": ids, "finish_reason": said.finish}]}})
            said.text = ""  # of the completion: unparsed
            said.add(answer, 0)
        elif not said.chat:
            return
        if said.finish == "length" and "<tool_call>" in said.text and not said.chat:
            return  # cut within a call: vLLM's parser gives up all calls of such an answer, unless it streams
        self.parsed += 1
        want = (said.text, said.reasoning, [(c["name"], c["arguments"]) for c in said.calls])
        got = (text, thought, [(c["name"], c["arguments"]) for c in calls])
        if api not in ("chat", "responses"):  # arguments are objects there
            want, got = want[:2], got[:2]
        if want != got:
            bad(f"the harness heard {got!r}, the engine's parsers say {want!r} ({call.path})")
