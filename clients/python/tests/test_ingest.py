"""Writing to the real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT, Server

import icecore
from icecore import encode
from icecore.prefix import Prefixes


def call(rollout: str, seq: int, prompt: Any, response: Any, **more: Any) -> dict[str, Any]:
    return {
        "trace_id": f"{rollout}-{seq}",
        "rollout_id": rollout,
        "seq": seq,
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "response_logprobs": [-0.5] * len(response),
        "policy_version": 3,
        **more,
    }


def stored(c: icecore.Client, trace_id: str) -> dict[str, Any]:
    from icecore.calls import get

    return c._send(get(f"/v1/traces/{trace_id}", {"include": "bodies"}))


def test_direct_calls(shared_client: icecore.Client) -> None:
    c = shared_client
    assert [i.status for i in c.begin([{"trace_id": "d-1", "rollout_id": "d", "seq": 1}])] == ["stored"]
    items = c.post_traces([call("d", 1, [1, 2, 3], [4, 5])], ack="queryable")
    assert items == [icecore.Item(0, "d-1", "stored")]
    assert [i.status for i in c.post_traces(call("d", 1, [1, 2, 3], [4, 5]))] == ["duplicate"]
    assert c.put_rollout("d", task_id="t", group_id="g", group_size=1, split="train")["task_id"] == "t"
    assert c.finish("d", "succeeded")["complete"] is True
    c.post_rewards([{"reward_id": "w", "rollout_id": "d", "value": 1.5}])
    assert c.rollout("d")["rewards"][0]["value"] == 1.5
    assert [r["rollout_id"] for r in c.rollouts(group_id="g")] == ["d"]
    assert [g["complete"] for g in c.groups(group_id="g")] == [True]


def test_refused_items_raise_or_are_given(shared_client: icecore.Client) -> None:
    good, bad = call("x", 1, [1], [2]), call("x", 2, [1, -2], [3])
    with pytest.raises(icecore.IngestError) as caught:
        shared_client.post_traces([good, bad])
    assert [(r.index, r.id, r.code) for r in caught.value.refused] == [(1, "x-2", "invalid_token_id")]
    assert str(caught.value).startswith("1 of 2 items was refused, the others are stored\n  trace 1 (x-2)")
    with pytest.raises(icecore.IngestError, match="^the item was refused\n"):
        shared_client.post_traces([bad])
    with pytest.raises(icecore.IngestError, match="^all 2 items were refused\n"):
        shared_client.post_traces([bad, bad])
    items = shared_client.post_traces([good, bad], allow_refused=True)
    assert [i.status for i in items] == ["duplicate", "refused"]


def test_conflicting_finish_is_a_problem(shared_client: icecore.Client) -> None:
    shared_client.finish("twice", "failed")
    with pytest.raises(icecore.ProblemError) as caught:
        shared_client.finish("twice", "succeeded")
    assert (caught.value.status, caught.value.code, caught.value.field) == (409, "conflict", "status")


def captured() -> list[dict[str, Any]]:
    with pa.input_stream(str(ROOT / "testdata" / "captures" / "plain.ndjson.zst"), compression="zstd") as f:
        return [json.loads(line) for line in f.read().splitlines()]


def test_arrow_and_json_mean_the_same(shared_client: icecore.Client) -> None:
    """What goes as Arrow is byte for byte what goes as JSON: the server says
    duplicate, although it compares every field, bodies included."""
    traces = captured()[:120]
    assert len(traces) == 120
    plain = [encode.Trace({**t}) for t in traces]
    assert all(t.json is None for t in plain), "the captures should all be sendable as Arrow"
    for t in plain:
        t.json = encode.object_bytes(next(x for x in traces if x["trace_id"] == t.id))
    from icecore.ingest import Entry, deliver

    statuses: list[str] = []
    entries = [Entry(i, "trace", t, str(t.id), t.rollout, t.size) for i, t in enumerate(plain)]
    shared_client._steps(deliver(entries, lambda e, item: statuses.append(item.status)))
    assert set(statuses) == {"stored"}
    assert {i.status for i in shared_client.post_traces(traces)} == {"duplicate"}


@pytest.mark.parametrize(
    "values",
    [
        [-0.5, None, float("nan"), float("-inf")],
        np.array([-0.5, -1.5, np.nan, -np.inf], np.float32),
        np.array([-0.5, -1.5, np.nan, 0.0], np.float64),
        ["NaN", "-Infinity", -0.5, None],  # no Arrow floats: goes as JSON
    ],
)
def test_logprobs_survive(shared_client: icecore.Client, values: Any, request: pytest.FixtureRequest) -> None:
    rollout = f"lp-{request.node.callspec.indices['values']}"
    shared_client.post_traces([call(rollout, 1, np.array([7], np.int64), (1, 2, 3, 4), response_logprobs=values)])
    names = {"NaN": float("nan"), "-Infinity": float("-inf")}
    said = [names.get(v, v) for v in stored(shared_client, f"{rollout}-1")["response_logprobs"]]
    given = [names.get(v, v) if isinstance(v, str) else v for v in (values if isinstance(values, list) else values.tolist())]
    assert said == pytest.approx(given, nan_ok=True) if None not in given else [str(v) for v in said] == [str(v) for v in given]


def test_bodies_are_kept_as_bytes(shared_client: icecore.Client) -> None:
    raw = b'{"b": 1,  "a": [1.50, 2]}'
    for n, extra in enumerate(({}, {"colour": {"deep": [1]}})):  # the second goes as JSON
        shared_client.post_traces([call(f"body{n}", 1, [1], [2], request=raw, **extra)], ack="queryable")
        assert shared_client.sql("SELECT request FROM trace_bodies WHERE trace_id = $1", [f"body{n}-1"]).value() in (raw, raw.decode())


def test_nothing_is_shared_with_the_caller(shared_client: icecore.Client) -> None:
    prompt, metadata = np.array([1, 2, 3], np.int32), {"a": 1}
    with shared_client.writer(flush_seconds=60) as w:
        w.trace(call("mut", 1, prompt, [4], metadata=metadata))
        prompt[:] = 9
        metadata["a"] = 2
    kept = stored(shared_client, "mut-1")
    assert (kept["prompt_token_ids"], kept["metadata"]) == ([1, 2, 3], {"a": 1})


def agent(rollout: str, calls: int) -> list[dict[str, Any]]:
    """Calls that repeat their history, as an agent's do."""
    history, out = list(range(1, 200)), []
    for seq in range(calls):
        response = [1000 + seq, 2000 + seq]
        out.append(call(rollout, seq, list(history), response))
        history += [*response, 3000 + seq, 3001 + seq]
    return out


def test_prefixes_save_bytes_and_change_nothing(shared_client: icecore.Client) -> None:
    prefixes = Prefixes()
    sent = [encode.Trace(t) for t in agent("p", 8)]
    for t in sent:
        prefixes.shorten(t)
    assert [t.prefix for t in sent] == [None, *((f"p-{i}", 199 + 4 * i + 2) for i in range(7))]
    with shared_client.writer() as w:
        for fields in agent("p", 8):
            w.trace(fields)
    # The same sent whole is a duplicate: same content.
    assert {i.status for i in shared_client.post_traces(agent("p", 8))} == {"duplicate"}


def test_a_fork_goes_back_to_the_call_it_left(shared_client: icecore.Client) -> None:
    base = list(range(500))
    calls = [call("f", 1, base, [1]), call("f", 2, [9] * 300, [2]), call("f", 3, base + [1, 5], [3])]
    prefixes = Prefixes()
    sent = [encode.Trace(t) for t in calls]
    for t in sent:
        prefixes.shorten(t)
    assert [t.prefix for t in sent] == [None, None, ("f-1", 501)]


def test_prefixes_stay_within_memory() -> None:
    prefixes = Prefixes(remembered=40_000)
    for i in range(50):
        prefixes.shorten(encode.Trace(call(f"r{i}", 1, list(range(1000)), [1])))
        assert prefixes._bytes <= 40_000
    assert len(prefixes._rollouts) == 9


def test_an_unknown_prefix_is_sent_whole(shared_client: icecore.Client) -> None:
    """The earlier call was refused, so what builds on it must not be lost."""
    first, *rest = agent("u", 4)
    shared_client.post_traces([{**first, "policy_version": 99}])
    said: list[icecore.Refused] = []
    with shared_client.writer(on_refused=said.append) as w:
        w.trace({**first, "trace_id": "other", "response_token_ids": [1, -1]})  # refused
        w.trace(first)  # a conflict
        for t in rest:
            w.trace(t)
    assert {(r.id, r.code) for r in said} == {("other", "invalid_token_id"), ("u-0", "conflict")}
    assert {i.status for i in shared_client.post_traces(rest)} == {"duplicate"}


def test_on_refused_may_write_although_the_buffer_is_full(shared_client: icecore.Client) -> None:
    """It is called in the thread that makes room: waiting there would be for ever."""
    import threading

    said: list[str] = []

    def instead(refused: icecore.Refused) -> None:
        said.append(str(refused.id))
        w.reward(reward_id=f"{refused.id}-instead", rollout_id="full", value=0, metadata={"why": "x" * 5000})

    w = shared_client.writer(max_items=1, max_bytes=1000, max_buffered_bytes=4000, on_refused=instead)
    give = threading.Thread(target=lambda: [w.trace(call("full", i, [1] * 500, [-1])) for i in range(6)], daemon=True)
    give.start()
    give.join(60)
    assert not give.is_alive()
    w.flush(60)
    w.flush(60)  # what was written instead of the last ones
    w.close()
    assert said == [f"full-{i}" for i in range(6)]


def test_writer_reports_what_was_refused_by_its_place(shared_client: icecore.Client) -> None:
    w = shared_client.writer()
    w.trace(call("wr", 1, [1], [2]))
    w.reward(reward_id="w-bad", rollout_id="wr", value=float("inf"))
    w.reward({"reward_id": "w-good", "rollout_id": "wr", "value": 1})
    w.rollout("wr", no_such_field=1)
    w.finish("wr", "exploded")
    with pytest.raises(icecore.IngestError) as caught:
        w.flush()
    assert [(r.index, r.kind, r.id) for r in caught.value.refused] == [(1, "reward", "w-bad"), (3, "rollout", "wr"), (4, "finish", "wr")]
    w.flush()  # reported once
    w.finish("wr", "succeeded")
    w.close()
    assert shared_client.rollout("wr")["status"] == "succeeded"
    with pytest.raises(icecore.IcecoreError, match="closed"):
        w.trace(call("wr", 2, [1], [2]))


def test_order_within_a_rollout_is_kept(shared_client: icecore.Client) -> None:
    """A trace after its rollout's finish would mark it reopened."""
    with shared_client.writer(max_items=7, flush_seconds=60) as w:
        for i in range(20):
            for seq in (1, 2):
                w.begin(trace_id=f"o{i}-{seq}", rollout_id=f"o{i}", seq=seq)
                w.trace(call(f"o{i}", seq, [1, 2, seq], [3]))
            w.rollout(f"o{i}", task_id="order", split="train")
            w.finish(f"o{i}", "succeeded")
            w.reward(reward_id=f"o{i}", rollout_id=f"o{i}", value=i)
    found = list(shared_client.rollouts(task_id="order"))
    assert len(found) == 20
    assert {(r["complete"], r["reopened"], r["traces"]) for r in found} == {(True, False, 2)}


def test_one_bad_item_does_not_take_its_request_along(shared_client: icecore.Client) -> None:
    """A body that is no JSON refuses the request as a whole: halves are tried."""
    said: list[icecore.Refused] = []
    with shared_client.writer(on_refused=said.append) as w:
        for i in range(9):
            request = b"{broken" if i == 5 else b"{}"
            w.trace(call("half", i, [1], [2], request=request, colour=["so that it goes as JSON"]))
    assert [(r.index, r.id, r.code) for r in said] == [(5, "half-5", "invalid_json")]
    assert shared_client.rollout("half")["traces"] == 8


def test_nothing_is_lost_when_the_server_is_killed(server: Server) -> None:
    with icecore.Client(server.url, timeout=30.0) as c:
        w = c.writer(max_items=5, flush_seconds=0.0)
        for i in range(100):
            if i in (30, 60):
                server.kill()
                for seq in range(3):  # given while nobody listens
                    w.trace(call(f"while-{i}", seq, [1], [2]))
                server.start()
            w.trace(call(f"k{i}", 1, [1, 2], [3]))
        w.close()
        c.post_traces([call("last", 1, [1], [2])], ack="queryable")
        assert c.sql("SELECT count(*) FROM traces").value() == 107


def test_a_full_buffer_blocks_until_there_is_room(server: Server) -> None:
    import threading

    with icecore.Client(server.url) as c:
        w = c.writer(max_items=10, max_bytes=10_000, max_buffered_bytes=10_000, flush_seconds=0.0, prefix=False)
        server.kill()
        blocked, through = threading.Event(), threading.Event()

        def fill() -> None:
            for i in range(20):
                if i == 10:
                    blocked.set()
                w.trace(call(f"b{i}", 1, np.arange(500), [1]))
                assert w._buffer.size <= 10_000
            through.set()

        filler = threading.Thread(target=fill, daemon=True)
        filler.start()
        # 20 traces of 2,000 bytes do not fit: it cannot get through yet.
        with w._changed:
            assert w._changed.wait_for(lambda: w._buffer.unsent >= 4, 30)
        assert not through.is_set() and not blocked.is_set()
        server.start()
        assert through.wait(60)
        filler.join()
        w.close()
        assert w._buffer.done == 20


def test_close_with_a_timeout_counts_what_is_unsent(server: Server) -> None:
    with icecore.Client(server.url) as c:
        w = c.writer(flush_seconds=0.0)
        server.kill()
        w.trace(call("t", 1, [1], [2]))
        with pytest.raises(icecore.IngestError, match="1 items are not acknowledged") as caught:
            w.close(timeout=0.2)
        assert caught.value.unsent == 1
        w._thread.join()


def test_a_wrong_server_is_not_waited_for(shared_server: Server) -> None:
    with icecore.Client(shared_server.url + "/nowhere") as c:
        w = c.writer(flush_seconds=0.0)
        w.trace(call("t", 1, [1], [2]))
        with pytest.raises(icecore.IngestError, match="404"):
            w.close()


FORGOTTEN = """
import icecore, sys
c = icecore.Client(sys.argv[1])
w = c.writer(flush_seconds=3600)
for i in range(3):
    w.trace(trace_id=f"forgot-{i}", rollout_id="forgot", seq=i, prompt_token_ids=[1], response_token_ids=[2])
"""


def run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    path = str(ROOT / "clients" / "python" / "src")
    return subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=120, env={"PYTHONPATH": path})


def test_a_forgotten_writer_complains_and_sends(shared_server: Server, shared_client: icecore.Client) -> None:
    ended = run(FORGOTTEN, shared_server.url)
    assert ended.returncode == 0, ended.stderr
    assert "WARNING: a writer was not closed: 3 items were unsent" in ended.stderr
    assert shared_client.rollout("forgot")["traces"] == 3


def test_a_forgotten_writer_counts_what_it_lost(tmp_path: Path) -> None:
    import socket

    with socket.socket() as s:  # a port where nobody listens
        s.bind(("127.0.0.1", 0))
        program = FORGOTTEN.replace("import icecore", "import icecore.writer; icecore.writer.LAST_CHANCE = 0.2\nimport icecore")
        ended = run(program, f"http://127.0.0.1:{s.getsockname()[1]}")
    assert "WARNING: a writer was not closed" in ended.stderr and "3 items are not acknowledged" in ended.stderr
