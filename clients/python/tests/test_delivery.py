"""Leases of the real server."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Server

import icecore

SRC = str(ROOT / "clients" / "python" / "src")


def fill(c: icecore.Client, groups: int, size: int = 2, prefix: str = "g", rows: int = 1) -> None:
    """Groups of ``size`` rollouts, rewards 0, 1, 2, …; a rollout of several rows has
    prompts that do not continue each other."""
    with c.writer() as w:
        for g in range(groups):
            for s in range(size):
                r = f"{prefix}{g}-{s}"
                for seq in range(rows):
                    w.trace(trace_id=f"{r}-{seq}", rollout_id=r, seq=seq, policy_version=5, finish_reason="stop", harness="h",
                            prompt_token_ids=[seq + 1, 2, 3], response_token_ids=[10 + s, 11], response_logprobs=[-0.5, None if s else -0.25])
                w.rollout(r, group_id=f"{prefix}{g}", group_size=size, sample_index=s, split="train", task_id=f"t{g}")
                w.finish(r, "succeeded")
                w.reward(reward_id=r, rollout_id=r, value=s)


@pytest.fixture
def filled(client: icecore.Client) -> Iterator[icecore.Client]:
    fill(client, 4)
    yield client


def test_a_group_is_leased_trained_and_gone(filled: icecore.Client) -> None:
    c = filled
    with c.lease("learner", groups=2, key="step-0", policy_version=6, wait=30.0) as b:  # type: ignore[union-attr]
        assert (len(b), b.meta["groups"], b.meta["lease_groups"], b.meta["policy_version_now"]) == (4, 2, 2, 6)
        assert b.valid and b.key == "step-0" and b.shard is None
        for group in b.groups():
            assert [rows[0].reward for rows in group] == [0.0, 1.0]
            assert [rows[0].advantage for rows in group] == pytest.approx([-0.7071, 0.7071], abs=1e-4)
        row = b.rows()[0]
        assert row.tokens.tolist() == [1, 2, 3, 10, 11] and row.mask.tolist() == [0, 0, 0, 1, 1]
        assert c.lease_state(b.lease_id)["state"] == "open"
        assert [le["lease_id"] for le in c.consumer("learner")["open_leases"]] == [b.lease_id]
        said = b.ack(metrics={"loss": 0.5})
        assert said["state"] == "acknowledged"
    rest = c.lease("learner")
    assert rest and rest.meta["groups"] == 2
    rest.ack()
    assert not c.lease("learner")
    assert [x["consumer"] for x in c.consumers()] == ["learner"]
    assert c.consumer("learner")["acknowledged"]["rows"] == 8
    # Another consumer sees all of it.
    other = c.lease("other")
    assert other and len(other) == 8


def test_why_there_is_nothing(client: icecore.Client) -> None:
    client.put_rollout("a", group_id="g", group_size=2)
    assert not client.lease("learner")
    assert client.last_wait is not None and client.last_wait.reasons["not_finished"] == 1


def test_the_same_key_is_the_same_batch(filled: icecore.Client) -> None:
    first = filled.lease("learner", key="k", groups=2)
    again = filled.lease("learner", key="k", groups=2, codec="zstd")
    assert first and again
    assert again.lease_id == first.lease_id and again.table.equals(first.table)
    with pytest.raises(icecore.ProblemError) as caught:
        filled.lease("learner", key="k", groups=3)
    assert caught.value.code == "conflict"
    first.ack()
    assert again.ack()["state"] == "acknowledged"  # twice is once
    with pytest.raises(icecore.ProblemError) as caught:
        filled.lease("learner", key="k", groups=2)
    assert caught.value.code == "lease_acknowledged"


def test_what_was_returned_comes_again(filled: icecore.Client) -> None:
    with pytest.raises(RuntimeError):
        with filled.lease("learner", groups=4) as b:  # type: ignore[union-attr]
            raise RuntimeError("a crash")
    with pytest.raises(icecore.LeaseLost):
        b.ack()
    again = filled.lease("learner")
    assert again and again.table["trajectory_id"].equals(b.table["trajectory_id"])


def test_a_lease_given_to_another_is_lost(filled: icecore.Client) -> None:
    b = filled.lease("learner", groups=4)
    assert b
    # The same, as by another process that heard of a crash.
    filled._send(icecore.held.Held(b.lease_id, b.key, None, None).nack())
    taken = filled.lease("learner")
    assert taken and len(taken) == 8
    with pytest.raises(icecore.LeaseLost):
        b.ack()
    assert not b.valid and taken.ack()["state"] == "acknowledged"


def test_heartbeats_outlive_the_lease_time(filled: icecore.Client) -> None:
    b = filled.lease("learner", lease_seconds=1)
    assert b
    first = filled.lease_state(b.lease_id)["expires_at"]
    watch = threading.Event()
    for _ in range(600):
        if filled.lease_state(b.lease_id)["expires_at"] > first or watch.wait(0.1):
            break
    said = filled.lease_state(b.lease_id)
    assert said["expires_at"] > first and said["state"] == "open" and b.valid
    b.ack()


def test_advantages_are_of_the_group_alone(client: icecore.Client) -> None:
    """Row 9: rewards [1, 3] and [5]: never one mean over the batch."""
    with client.writer() as w:
        for rollout, group, size, reward in (("a", "g0", 2, 1), ("b", "g0", 2, 3), ("c", "g1", 1, 5)):
            w.trace(trace_id=rollout, rollout_id=rollout, seq=0, prompt_token_ids=[1], response_token_ids=[2], response_logprobs=[-0.5])
            w.rollout(rollout, group_id=group, group_size=size)
            w.finish(rollout, "succeeded")
            w.reward(reward_id=rollout, rollout_id=rollout, value=reward)
    b = client.lease("learner", groups=2)
    assert b
    assert [r.advantage for r in b.rows()] == pytest.approx([-0.7071, 0.7071, 0.0], abs=1e-4)
    assert [r.zero_advantage for r in b.rows()] == [False, False, True]


def test_shards_are_one_batch(filled: icecore.Client) -> None:
    """Row 16: ranks see the same number of batches and micro-batches, also at the end."""
    seen: list[list[tuple[str, int, int]]] = []
    ids: list[str] = []
    for rank in range(3):
        with filled.prefetch("learner", key="step", groups=2, shards=3, shard=rank, tokens_per_microbatch=8, idle=0) as ahead:
            steps = []
            for b in ahead:
                assert b.shard == rank and b.microbatches >= 1
                steps.append((b.key, b.microbatches, int(b.meta["lease_rows"])))
                ids += b.table["trajectory_id"].to_pylist()
                assert sum(len(b.microbatch(i)) for i in range(b.microbatches)) == len(b)
                b.detach()  # acknowledged below, when all ranks have seen it
            seen.append(steps)
    assert seen[0] == seen[1] == seen[2] and len(seen[0]) == 2
    assert len(ids) == len(set(ids)) == 8
    for key, _, _ in seen[0]:
        for rank in range(3):
            b2 = filled.lease("learner", key=key, groups=2, shards=3, shard=rank, tokens_per_microbatch=8)
            assert b2
            said = b2.ack()
        assert said["state"] == "acknowledged"


def test_workers_share_nothing(filled: icecore.Client) -> None:
    """Row 17: four workers, groups of two: each row once, no group split."""
    program = """
import sys, pickle, icecore
c = icecore.Client(sys.argv[1])
with c.prefetch("learner", max_groups=1, idle=0) as ahead:
    for b in ahead:
        print(*b.table["rollout_id"].to_pylist(), flush=True)
        b.ack()
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", program, filled.url], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SRC})
        for _ in range(4)
    ]
    lines = [line.split() for w in workers for line in w.communicate(timeout=120)[0].splitlines()]
    assert all(w.returncode == 0 for w in workers)
    assert sorted(lines) == [[f"g{g}-0", f"g{g}-1"] for g in range(4)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(filled: icecore.Client) -> None:
    """Row 18: a client, a writer and a lease in the parent, used, then a fork. The
    child's client works on connections of its own; the parent's goes on."""
    c = filled
    b = c.lease("learner", groups=1)
    w, ahead = c.writer(), c.prefetch("learner")
    assert b and c._http is not None
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 and later warn of a fork in a process with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            said = []
            assert c._http is None and c._heart._thread is None
            mine = c.lease("learner", groups=1)
            said.append(mine and mine.lease_id != b.lease_id and mine.ack()["state"])
            for use in (lambda: w.trace({}), w.flush, lambda: next(ahead)):
                try:
                    said.append(str(use()))
                except icecore.IcecoreError as e:
                    said.append(type(e).__name__)
            # The parent's are left alone.
            b.close()
            ahead.close()
            c.close()
            os.write(write, pickle.dumps(said))
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pickle.loads(pipe.read() or pickle.dumps("the child failed"))
    assert os.waitpid(child, 0)[1] == 0
    assert said == ["acknowledged", "IcecoreError", "IcecoreError", "IcecoreError"]
    assert b.valid and b.ack()["state"] == "acknowledged"
    w.trace(trace_id="after", rollout_id="after", seq=0, prompt_token_ids=[1])
    w.close()


LEARNER = """
import sys, icecore
c = icecore.Client(sys.argv[1])
b = c.lease("learner", groups=2, lease_seconds=1)
print(b.lease_id, flush=True)
sys.stdin.read()
"""


def test_a_learner_that_is_killed_loses_nothing(filled: icecore.Client) -> None:
    dead = subprocess.Popen([sys.executable, "-c", LEARNER, filled.url], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": SRC})
    assert dead.stdout is not None and dead.stdin is not None
    lease_id = dead.stdout.readline().strip()
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    dead.stdout.close()
    dead.stdin.close()
    rollouts: list[str] = []
    while len(rollouts) < 8:
        b = filled.lease("learner", max_groups=1, wait=30.0)
        assert b
        rollouts += b.table["rollout_id"].to_pylist()
        b.ack()
    assert sorted(rollouts) == sorted(f"g{g}-{s}" for g in range(4) for s in range(2))
    assert filled.lease_state(lease_id)["state"] in ("expired", "cancelled", "returned")


MORTAL = """
import sys, icecore
c = icecore.Client(sys.argv[1])
with c.prefetch("learner", max_groups=1, lease_seconds=2, idle=6) as ahead:
    for b in ahead:
        print("leased", flush=True)
        try:
            b.ack()
        except icecore.LeaseLost:
            continue
        print("acked", *sorted(set(b.table["group_id"].to_pylist())), flush=True)
"""


def test_learners_and_server_die_and_each_group_is_acknowledged_once(server: Server, client: icecore.Client) -> None:
    """Learners are killed between lease and ack, and after it, the server in
    between; the server counts what was acknowledged."""
    groups = 12
    fill(client, groups)
    draw = random.Random(4)
    told: list[str] = []
    environment = {**os.environ, "PYTHONPATH": SRC}
    # Each learner lives for so many lines of its output, the last one to its end.
    for life in (*(draw.randrange(1, 6) for _ in range(5)), 1000):
        learner = subprocess.Popen([sys.executable, "-c", MORTAL, client.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        assert learner.stdout is not None
        for n in range(life):
            word, *ids = learner.stdout.readline().split() or ["ended"]
            told += ids
            if word == "ended":
                break
            if n == 2:
                server.kill()
                server.start()
        learner.kill()
        told += [i for line in learner.stdout.read().splitlines() for i in line.split()[1:]]
        learner.stdout.close()
        learner.wait()
    said = client.consumer("learner")
    assert said["acknowledged"]["groups"] == groups and said["acknowledged"]["rollouts"] == 2 * groups
    # An ack may have counted without its learner living to tell; none counted twice.
    assert len(told) == len(set(told)) and set(told) <= {f"g{g}" for g in range(groups)}
    assert not client.lease("learner")


def test_ack_outlives_a_restart_of_the_server(server: Server, filled: icecore.Client) -> None:
    b = filled.lease("learner", groups=4)
    assert b
    server.kill()
    answers: list[Any] = []
    asker = threading.Thread(target=lambda: answers.append(b.ack()))
    asker.start()
    server.start()
    asker.join(60)
    assert answers[0]["state"] == "acknowledged"
    assert not filled.lease("learner")


def test_seek_and_delete(filled: icecore.Client) -> None:
    b = filled.lease("learner")
    assert b
    b.ack()
    assert filled.seek("learner", to="beginning")["consumer"] == "learner"
    again = filled.lease("learner")
    assert again and len(again) == len(b)
    assert filled.seek("learner", policy_version=6)["cancelled_leases"] == 1
    with pytest.raises(icecore.LeaseLost):
        again.ack()
    filled.delete_consumer("learner")
    with pytest.raises(icecore.ProblemError, match="not_found"):
        filled.consumer("learner")


def test_logprobs_back(filled: icecore.Client) -> None:
    with filled.lease("learner", policy_version=6) as b:  # type: ignore[union-attr]
        posted = {r.id: np.where(r.mask, -0.75, np.nan).astype(np.float32) for r in b.rows()}
        assert {i.status for i in b.post_logprobs(posted)} == {"stored"}
        assert {i.status for i in b.post_logprobs(posted)} == {"duplicate"}
        short = {b.rows()[0].id: np.zeros(4, np.float32)}
        with pytest.raises(icecore.IngestError, match="length_mismatch"):
            b.post_logprobs(short)
        b.ack()
    filled.post_traces({"trace_id": "z", "rollout_id": "z", "seq": 0, "prompt_token_ids": [1]}, ack="queryable")
    assert filled.sql("SELECT count(*) FROM learner_logprobs").value() == 8
    assert filled.analytics("mismatch")


def test_the_body_of_a_lease_is_not_copied(filled: icecore.Client) -> None:
    import pyarrow as pa

    b = filled.lease("learner")
    assert b
    before = pa.total_allocated_bytes()
    views = [r.tokens for r in b.rows()] + [r.mask for r in b.rows()]
    assert pa.total_allocated_bytes() == before and len(views) == 16
    assert not any(v.flags.writeable for v in views)


