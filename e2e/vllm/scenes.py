"""What harnesses do: calls through all four APIs, streamed and not, in conversations."""

import http.client
import json

SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "enum": ["a.py", "src/größe.py", "b c.py"]}},
          "required": ["path"], "additionalProperties": False}
NAME, ABOUT = "read_file", "Read a file."
QUESTIONS = ["Read the file, then say what is wrong in it.", "And <think> about größe 🙂?", "Mend \"it\".\n", "Why?"]


class Broken(Exception):
    """The answer ended as an answer must not end."""


class Client:
    def __init__(self, base: str):
        self.host = base.removeprefix("http://")

    def get(self, path: str):
        return self.post(path, None)[0]

    def exists(self, path: str) -> bool:
        try:
            return bool(self.get(path))
        except Broken:
            return False

    def post(self, path: str, body: dict | None, leave_after: int = 0):
        """The answer: an object, or a list of events when it is a stream, and the trace's
        id. leave_after: close the connection after so many events."""
        c = http.client.HTTPConnection(self.host, timeout=300)
        try:
            if body is None:
                c.request("GET", path)
            else:
                c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = c.getresponse()
            trace = answer.getheader("Icecore-Trace-Id")
            if "event-stream" not in (answer.getheader("Content-Type") or ""):
                told = json.loads(answer.read())
                if answer.status != 200:
                    raise Broken(f"{answer.status}: {told}")
                return told, trace
            events = []
            for line in answer:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    events.append(json.loads(line[6:]))
                    if len(events) == leave_after:
                        return events, trace
            return events, trace
        finally:
            c.close()


class Chat:
    """Chat Completions. heard() gives text, thinking, calls and finish; go_on() the
    request's next history."""

    path = "/gateway/{}/v1/chat/completions"

    def first(self, model, tools, choice, tokens, **more):
        body = {"model": model, "max_tokens": tokens, "messages": [{"role": "system", "content": "You mend files."},
                {"role": "user", "content": QUESTIONS[0]}]} | more
        if tools:
            body["tools"] = [{"type": "function", "function": {"name": NAME, "description": ABOUT, "parameters": SCHEMA}}]
            if choice:
                body["tool_choice"] = choice
        return body

    def stream(self, body):
        return body | {"stream": True}

    def heard(self, told):
        text, thought, calls, finish = "", "", {}, None
        for chunk in told if isinstance(told, list) else [told]:
            if "error" in chunk:
                raise Broken(str(chunk))
            for c in chunk["choices"]:
                if c["index"] != 0:
                    continue
                said, finish = c.get("delta") or c.get("message") or {}, c.get("finish_reason") or finish
                text += said.get("content") or ""
                thought += said.get("reasoning_content") or ""
                for i, call in enumerate(said.get("tool_calls") or []):
                    at = calls.setdefault(call.get("index", i), {"id": "", "name": "", "arguments": ""})
                    at["id"] += call.get("id") or ""
                    for name in ("name", "arguments"):
                        at[name] += call["function"].get(name) or ""
        return text, thought, list(calls.values()), finish

    def go_on(self, body, told, question):
        text, thought, calls, _ = self.heard(told)
        turn = {"role": "assistant", "content": text}
        if thought:
            turn["reasoning_content"] = thought
        if calls:
            turn["tool_calls"] = [{"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls]
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "x = 1\n"} for c in calls]
        body["messages"] += [turn, *(results or [{"role": "user", "content": question}])]


class Responses:
    path = "/gateway/{}/v1/responses"

    def first(self, model, tools, choice, tokens, **more):
        body = {"model": model, "max_output_tokens": tokens, "instructions": "You mend files.", "store": False,
                "input": [{"type": "message", "role": "user", "content": QUESTIONS[0]}]} | more
        if tools:
            body["tools"] = [{"type": "function", "name": NAME, "description": ABOUT, "parameters": SCHEMA}]
            if choice:
                body["tool_choice"] = choice
        return body

    def stream(self, body):
        return body | {"stream": True}

    def whole(self, told):
        if isinstance(told, list):
            last = told[-1]
            if last["type"] not in ("response.completed", "response.incomplete"):
                raise Broken(str(last))
            return last["response"]
        return told

    def heard(self, told):
        text, thought, calls = "", "", []
        answer = self.whole(told)
        for item in answer["output"]:
            if item["type"] == "message":
                text += "".join(part["text"] for part in item["content"])
            elif item["type"] == "reasoning":
                thought += "".join(part["text"] for part in item.get("content") or item.get("summary") or [])
            else:
                calls.append({"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]})
        return text, thought, calls, answer["status"]

    def go_on(self, body, told, question):
        output = self.whole(told)["output"]
        results = [{"type": "function_call_output", "call_id": i["call_id"], "output": "x = 1\n"} for i in output if i["type"] == "function_call"]
        body["input"] += [*output, *(results or [{"type": "message", "role": "user", "content": question}])]


class Messages:
    path = "/gateway/{}/v1/messages"

    def first(self, model, tools, choice, tokens, **more):
        body = {"model": model, "max_tokens": tokens, "system": "You mend files.",
                "messages": [{"role": "user", "content": QUESTIONS[0]}]} | more
        if tools:
            body["tools"] = [{"name": NAME, "description": ABOUT, "input_schema": SCHEMA}]
            if choice:
                body["tool_choice"] = {"type": "any"}
        return body

    def stream(self, body):
        return body | {"stream": True}

    def blocks(self, told):
        if not isinstance(told, list):
            return told["content"], told["stop_reason"]
        blocks, finish, ended = {}, None, False
        for e in told:
            if e["type"] == "error":
                raise Broken(str(e))
            if e["type"] == "content_block_start":
                blocks[e["index"]] = e["content_block"] | ({"input": ""} if e["content_block"]["type"] == "tool_use" else {})
            elif e["type"] == "content_block_delta":
                d, b = e["delta"], blocks[e["index"]]
                for name, into in (("text", "text"), ("thinking", "thinking"), ("partial_json", "input"), ("signature", "signature")):
                    if name in d:
                        b[into] = b.get(into, "") + d[name]
            elif e["type"] == "message_delta":
                finish = e["delta"]["stop_reason"]
            ended = ended or e["type"] == "message_stop"
        if not ended:
            raise Broken(f"no message_stop in {told[-1:]}")
        for b in blocks.values():
            if b["type"] == "tool_use":
                try:
                    b["input"] = json.loads(b["input"] or "{}")
                except ValueError:  # cut by its length
                    b["input"] = {}
        return list(blocks.values()), finish

    def heard(self, told):
        blocks, finish = self.blocks(told)
        pick = lambda kind, name: "".join(b[name] for b in blocks if b["type"] == kind)  # noqa: E731
        calls = [{"id": b["id"], "name": b["name"], "arguments": json.dumps(b["input"])} for b in blocks if b["type"] == "tool_use"]
        return pick("text", "text"), pick("thinking", "thinking"), calls, finish

    def go_on(self, body, told, question):
        blocks, _ = self.blocks(told)
        results = [{"type": "tool_result", "tool_use_id": b["id"], "content": "x = 1\n"} for b in blocks if b["type"] == "tool_use"]
        body["messages"] += [{"role": "assistant", "content": blocks or [{"type": "text", "text": "."}]},
                             {"role": "user", "content": results or question}]


class Generate:
    path = "/gateway/{}/v1beta/models/{}:generateContent"

    def first(self, model, tools, choice, tokens, **more):
        body = {"model": model, "systemInstruction": {"parts": [{"text": "You mend files."}]},
                "generationConfig": {"maxOutputTokens": tokens, "thinkingConfig": {"includeThoughts": True}} | more,
                "contents": [{"role": "user", "parts": [{"text": QUESTIONS[0]}]}]}
        if tools:
            body["tools"] = [{"functionDeclarations": [{"name": NAME, "description": ABOUT, "parametersJsonSchema": SCHEMA}]}]
            if choice:
                body["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
        return body

    def stream(self, body):
        return body

    def parts(self, told):
        out, finish = [], None
        for chunk in told if isinstance(told, list) else [told]:
            if "error" in chunk:
                raise Broken(str(chunk))
            for c in chunk.get("candidates", []):
                out += c.get("content", {}).get("parts", [])
                finish = c.get("finishReason") or finish
        return out, finish

    def heard(self, told):
        parts, finish = self.parts(told)
        text = "".join(p.get("text", "") for p in parts if not p.get("thought"))
        thought = "".join(p.get("text", "") for p in parts if p.get("thought"))
        calls = [{"id": p["functionCall"].get("id"), "name": p["functionCall"]["name"], "arguments": json.dumps(p["functionCall"].get("args", {}))}
                 for p in parts if "functionCall" in p]
        return text, thought, calls, finish

    def go_on(self, body, told, question):
        parts, _ = self.parts(told)
        results = [{"functionResponse": {"id": p["functionCall"].get("id"), "name": p["functionCall"]["name"], "response": {"output": "x = 1\n"}}}
                   for p in parts if "functionCall" in p]
        body["contents"] += [{"role": "model", "parts": parts or [{"text": "."}]},
                             {"role": "user", "parts": results or [{"text": question}]}]


APIS = {"chat": Chat(), "responses": Responses(), "messages": Messages(), "generate": Generate()}


def ask(client: Client, api, rollout: str, body: dict, stream: bool, leave_after: int = 0):
    path = api.path.format(rollout, body["model"])
    if stream and ":generateContent" in path:
        path = path.replace(":generateContent", ":streamGenerateContent") + "?alt=sse"
    return client.post(path, api.stream(body) if stream else body, leave_after)
