"""What the tests of the official SDKs share. TestSDKs starts the server and the engine;
it says where they are in the environment."""

import json
import os
import time
import urllib.error
import urllib.request
import uuid

import pytest

SERVER = os.environ.get("ICECORE_TEST_SERVER", "")
ENGINE = os.environ.get("ICECORE_TEST_ENGINE", "")

QUESTION = "what is in this directory?"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
# The turns of the model "policy", as the Go side scripts them.
TURNS = [("I should look.", "Let me see.", {"command": "ls -a"}), ("Now I know.", "There is été.txt, and “nothing” else.", None)]


class Rollout:
    """One rollout of its own: where its harness calls, and what icecore kept of it."""

    def __init__(self):
        self.id = "sdk-" + uuid.uuid4().hex[:12]
        self.url = f"{SERVER}/gateway/{self.id}"

    def traces(self):
        listed = get(f"{SERVER}/v1/rollouts/{self.id}/traces")["traces"]
        return [get(f"{SERVER}/v1/traces/{t['trace_id']}") for t in listed]

    def key(self):
        request = urllib.request.Request(f"{SERVER}/v1/rollouts/{self.id}/keys", data=b"{}", method="POST", headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["key"]

    def settled(self, n):
        """The traces, once there are n: those of calls that broke off come a little later."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                traces = self.traces()
            except urllib.error.HTTPError as e:
                assert e.code == 404
                traces = []
            if len(traces) >= n:
                assert len(traces) == n
                return traces
            time.sleep(0.02)  # nobody announces it
        raise AssertionError(f"waited in vain for {n} traces of {self.id}")

    def agrees(self, n, status="ok"):
        """All n traces have the status, and hold what the engine read and sampled."""
        traces = self.settled(n)
        entries = ledger()
        for t in traces:
            assert t["status"] == status
            entry = entries[t.get("choice_group", t["trace_id"])]
            choice = entry["choices"][t.get("choice_index", 0)]
            assert t["prompt_token_ids"] == entry["prompt_ids"]
            ids, logprobs = t["response_token_ids"], t["response_logprobs"]
            whole = len(choice["ids"]) if status == "ok" else len(ids)
            assert ids == choice["ids"][:whole]
            assert logprobs == pytest.approx(choice["logprobs"][:whole], abs=1e-6)
        return traces


def get(url):
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def ledger():
    """What the engine noted, by the id that icecore gave the call."""
    with urllib.request.urlopen(f"{ENGINE}/_ledger") as answer:
        entries = [json.loads(line) for line in answer]
    return {e["request_id"]: e for e in entries if e.get("request_id")}


@pytest.fixture
def rollout():
    return Rollout()
