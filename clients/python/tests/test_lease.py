"""Leases against a server that misbehaves (fake.py). Against the real one:
test_delivery.py."""

from __future__ import annotations

import gc
import logging
import pickle
import random
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import format_datetime

import httpx
import numpy as np
import pytest
from fake import Fake, Handler, boundaries, drops, forgets, later, problem, reply, says, serving, some_table, stream_of

import icecore
from icecore._http import Answer
from icecore.held import Held, time_of


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(some_table(), some_table(4), some_table(2)) as f:
        yield f


@pytest.fixture
def client(fake: Fake) -> Iterator[icecore.Client]:
    with icecore.Client(fake.url, timeout=20.0, retry_seconds=30.0) as c:
        yield c


def lease(c: icecore.Client, **options: object) -> icecore.Batch:
    batch = c.lease("learner", **options)  # type: ignore[arg-type]
    assert batch
    return batch


def test_a_batch(client: icecore.Client, fake: Fake) -> None:
    b = lease(client, key="step-1", groups=3, policy_version=7)
    assert fake.requests[0] == ("/v1/consumers/learner/lease", {"key": "step-1", "groups": 3, "policy_version": 7})
    assert (len(b), b.key, b.lease_id, b.shard, b.microbatches, b.valid) == (6, "step-1", "lease-0", None, 0, True)
    assert (b.meta["groups"], b.meta["epsilon"], b.meta["estimator"], b.meta["policy_version_now"]) == (3, 1e-6, "grpo", None)
    assert [[len(rollout) for rollout in group] for group in b.groups()] == [[1, 1]] * 3
    assert [r.rollout_id for r in b.rows()] == [f"r-{i}" for i in range(6)]
    assert b.ack({"loss": 0.5})["state"] == "acknowledged"
    assert fake.requests[-1] == ("/v1/leases/lease-0/ack", {"metrics": {"loss": 0.5}})
    assert not b.valid and b.state == "acknowledged"


def test_the_table_is_the_body_and_read_only(client: icecore.Client) -> None:
    ids = lease(client).table["token_ids"].chunk(0).flatten().to_numpy(zero_copy_only=True)
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_nothing_ready(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as fake, icecore.Client(fake.url) as c, caplog.at_level(logging.INFO, "icecore"):
        nothing = c.lease("learner", wait=0.5)
        assert fake.requests[0][1]["wait_seconds"] == 0.5
        assert isinstance(nothing, icecore.Nothing) and not nothing and c.last_wait is nothing
        assert nothing.reasons == {"not_rewarded": 3, "quiet": 0} and nothing.skipped == {"stale": 2}
        assert str(nothing) == "nothing is ready: 3 not rewarded, 2 skipped as stale"
        with c.lease("learner") as batch:
            assert batch is None
    # What was skipped is lost to this consumer.
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 2
    assert "3 not rewarded, 2 skipped as stale" in caplog.text


def test_nothing_ends_no_exception() -> None:
    with serving() as fake, icecore.Client(fake.url) as c, pytest.raises(RuntimeError, match="mine"):
        with c.lease("learner"):
            raise RuntimeError("mine")


def test_what_was_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    counts = {"skipped_stale": 3, "skipped_failed": 0, "excluded_failed": 2, "newer_than_learner": 4, "zero_advantage_groups": 1}
    lossy, whole = some_table(), some_table()
    lossy = lossy.replace_schema_metadata({**lossy.schema.metadata, **{f"icecore.{k}": str(n) for k, n in counts.items()}})
    with serving(lossy, whole) as fake, icecore.Client(fake.url) as c, caplog.at_level(logging.INFO, "icecore"):
        lease(c, key="k").ack()
        warned, remarked = caplog.records
        assert (warned.levelname, remarked.levelname) == ("WARNING", "INFO")
        said = warned.getMessage()
        for part in ("lease of learner (key k): ", "3 groups skipped as stale", "2 failed rollouts", "4 rows of a newer policy", "after a seek"):
            assert part in said
        assert "drop_group" not in said and "1 groups delivered whose advantages are all zero" in remarked.getMessage()
        caplog.clear()
        lease(c).ack()
        assert not caplog.records


def test_an_unknown_option_is_an_error(client: icecore.Client) -> None:
    with pytest.raises(TypeError, match="no option max_group; did you mean max_groups"):
        lease(client, max_group=None)
    with pytest.raises(TypeError, match="no option colour$"):
        lease(client, colour=3)
    with pytest.raises(TypeError, match="wait and wait_seconds are the same"):
        lease(client, wait=1, wait_seconds=1)


def test_wait_has_the_apis_name_too(client: icecore.Client, fake: Fake) -> None:
    lease(client, wait_seconds=2)
    assert fake.requests[0][1]["wait_seconds"] == 2


def test_prefetching_an_acknowledged_key_says_how_to_go_on(client: icecore.Client) -> None:
    lease(client, key="run-0").ack()
    with pytest.raises(icecore.ProblemError, match=r"'run-0'.*start=") as caught, client.prefetch("learner", key="run") as batches:
        next(batches)
    assert (caught.value.code, caught.value.status) == ("lease_acknowledged", 409)
    with client.prefetch("learner", key="run", start=1) as batches:
        assert next(batches).key == "run-1"


# Trying again


def test_a_lease_is_asked_again_with_the_same_key(client: icecore.Client, fake: Fake) -> None:
    """Also when the caller gave none: else the lost answer's groups would be held
    by nobody."""
    fake.fail("lease$", forgets, says(problem(503, "shutting_down", Retry_After="0")), drops)
    b = lease(client)
    asked = [body["key"] for path, body in fake.requests if path.endswith("lease")]
    assert len(asked) == 4 and len(set(asked)) == 1
    assert list(fake.leases) == [b.key] and b.lease_id == "lease-0"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_busy_answers_are_tried_again(client: icecore.Client, fake: Fake, status: int) -> None:
    fake.fail("lease$", says(problem(status, "busy", Retry_After="0")), says((status, {}, b"<html>a proxy")))
    assert lease(client).valid
    assert fake.count("lease$") == 3


def test_other_errors_are_raised_at_once(client: icecore.Client, fake: Fake) -> None:
    fake.fail("lease$", says(problem(500, "internal")))
    with pytest.raises(icecore.ProblemError) as caught:
        lease(client)
    assert (caught.value.code, fake.count("lease$")) == ("internal", 1)


def test_an_acknowledged_key_says_so(client: icecore.Client) -> None:
    lease(client, key="k").ack()
    with pytest.raises(icecore.ProblemError) as caught:
        lease(client, key="k")
    assert caught.value.code == "lease_acknowledged"


def test_giving_up_after_retry_seconds(fake: Fake) -> None:
    fake.fail("lease$", *[drops] * 2)
    with icecore.Client(fake.url, retry_seconds=0.0) as c:
        with pytest.raises(icecore.ConnectionFailed):
            lease(c)
        fake.fail("lease$", says(problem(503, "busy", Retry_After="3600")))
        fake.faults.popleft()
        with pytest.raises(icecore.ProblemError, match="503"):
            lease(c)


# Cut streams (learners.md 6, row 26)


def test_a_stream_cut_anywhere_raises(fake: Fake) -> None:
    """At every message boundary and inside messages, whether the transport ends the
    body as if that were all, or breaks: never a table, and nothing acknowledged."""
    stream = stream_of(some_table(), lease_id="lease-9", key="k")
    edges = boundaries(stream)
    assert len(edges) >= 7 and edges[-1] == len(stream) - 8  # schema, dictionaries, 3 batches
    draw = random.Random(26)
    cuts = sorted({0, 1, *edges, *(e + d for e in edges for d in (-1, 1, 4)), len(stream) - 1, *(draw.randrange(len(stream)) for _ in range(60))})
    with icecore.Client(fake.url, retry_seconds=0.0) as c:
        for clean in (True, False):
            for cut in cuts:
                def short(handler: Handler, cut: int = cut, clean: bool = clean) -> None:
                    handler.send((200, fake.headers("lease-9", "k", stream), stream), cut, clean)

                fake.fail("lease$", short)
                with pytest.raises(icecore.StreamError) as caught:
                    lease(c, key="k")
                assert (caught.value.lease_id, caught.value.key) == ("lease-9", "k"), (cut, clean)
        assert fake.count("ack$") == 0

        fake.fail("lease$", says((200, fake.headers("lease-9", "k", stream), stream)))
        assert len(lease(c, key="k")) == 6


def test_a_broken_connection_is_tried_again(client: icecore.Client, fake: Fake) -> None:
    def broken(handler: Handler) -> None:
        handler.send(fake.answer(handler.path, fake.requests[-1][1]), 3000, clean=False)

    fake.fail("lease$", broken)
    assert len(lease(client)) == 6 and fake.count("lease$") == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": "7"}, "7 rows were promised and 6 came"),
        ({"tokens": "17"}, "17 tokens were promised and 18 came"),
        ({"trained_tokens": "5"}, "trained tokens"),
        ({"groups": "2"}, "2 groups were promised and 3 came"),
        ({"rollouts": "5"}, "rollouts"),
        ({"key": "other"}, "'other'"),
        ({"shard": "3"}, "shard"),
        ({"lease_id": ""}, "does not name its lease"),
    ],
)
def test_a_stream_that_is_not_what_was_promised(client: icecore.Client, fake: Fake, changed: dict[str, str], message: str) -> None:
    stream = stream_of(some_table(), 2, **{"key": "k", **changed})
    headers = fake.headers("x", "k", stream)
    fake.fail("lease$", says((200, headers, stream)))
    with pytest.raises(icecore.StreamError, match=message):
        lease(client, key="k")
    # Header and metadata that differ are no better.
    if "rows" in changed:
        fake.fail("lease$", says((200, headers, stream_of(some_table(), key="k"))))
        with pytest.raises(icecore.StreamError, match="header and metadata say 7 and 6"):
            lease(client, key="k")


def test_bytes_behind_the_end_are_refused(client: icecore.Client, fake: Fake) -> None:
    stream = stream_of(some_table(), key="k")
    fake.fail("lease$", says((200, fake.headers("x", "k", stream), stream + stream)))
    with pytest.raises(icecore.StreamError, match="behind its end"):
        lease(client, key="k")


# Ack, nack


def test_ack_is_sent_until_it_is_answered(client: icecore.Client, fake: Fake) -> None:
    b = lease(client)
    fake.fail("ack$", drops, forgets, says(problem(503, "shutting_down", Retry_After="0")))
    assert b.ack()["state"] == "acknowledged"
    assert fake.count("/ack$") == 4
    b.ack()
    assert fake.count("/ack$") == 4  # known


def test_a_shard_acks_itself(client: icecore.Client, fake: Fake) -> None:
    b = lease(client, key="s", shards=2, shard=1)
    assert b.shard == 1
    b.ack()
    assert fake.requests[-1][1] == {"shard": 1}


def test_a_lost_lease_raises(client: icecore.Client, fake: Fake) -> None:
    b = lease(client)
    with fake.changed:
        fake.leases[b.key]["state"] = "lost"
    with pytest.raises(icecore.LeaseLost):
        b.ack()
    assert (b.state, b.valid) == ("lost", False)
    with pytest.raises(icecore.LeaseLost):
        b.ack()
    assert fake.count("/ack$") == 1


def test_a_block_that_raises_returns_its_batch(client: icecore.Client, fake: Fake) -> None:
    with pytest.raises(RuntimeError, match="optimizer"):
        with lease(client) as b:
            raise RuntimeError("optimizer")
    assert b.state == "returned" and fake.state(b.lease_id) == "returned"
    assert fake.requests[-1][1] == {"delay_seconds": 0.0, "reason": "RuntimeError: optimizer"}
    with pytest.raises(icecore.LeaseLost):
        b.ack()


def test_a_block_without_ack_returns_its_batch(client: icecore.Client, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    with lease(client) as b:
        pass
    assert fake.state(b.lease_id) == "returned" and "without ack" in caplog.text
    with lease(client) as b:
        b.ack()
    assert fake.state(b.lease_id) == "acknowledged"


def test_a_nack_that_fails_does_not_hide_the_exception(fake: Fake) -> None:
    with icecore.Client(fake.url, retry_seconds=0.0) as c:
        fake.fail("nack$", says(problem(500, "internal")))
        with pytest.raises(RuntimeError, match="mine"):
            with lease(c):
                raise RuntimeError("mine")


def test_an_exception_does_not_wait_for_a_server_that_is_gone(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ack is tried for as long as the lease may hold, here 300 s; leaving a block is not."""
    monkeypatch.setattr("icecore.lease.PARTING", 0.2)
    with icecore.Client(fake.url, retry_seconds=30.0) as c:
        fake.fail("nack$", *[drops] * 1000)
        with pytest.raises(RuntimeError, match="mine"):
            with lease(c) as b:
                raise RuntimeError("mine")
        assert 1 <= fake.count("nack$") <= 3 and b.state == "returned"


def test_closing_the_client_returns_what_is_open(fake: Fake) -> None:
    c = icecore.Client(fake.url)
    a, b = lease(c), lease(c)
    a.ack()
    c.close()
    assert (fake.state(a.lease_id), fake.state(b.lease_id)) == ("acknowledged", "returned")


def test_closing_the_client_returns_what_was_dropped(fake: Fake) -> None:
    c = icecore.Client(fake.url)
    lease_id = lease(c).lease_id
    gc.collect()
    c.close()
    assert fake.state(lease_id) == "returned"


def test_a_dropped_batch_is_returned(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    with serving(some_table(), seconds=1.0) as short, icecore.Client(short.url) as c:
        lease(c)
        gc.collect()
        short.wait(lambda: any(le["state"] == "returned" for le in short.leases.values()))
    assert "dropped" in caplog.text


# Heartbeats


def test_heartbeats_keep_a_lease() -> None:
    with serving(some_table(), seconds=2.0) as fake, icecore.Client(fake.url) as c:
        b = lease(c)
        fake.fail("extend$", drops)  # one that fails does not matter
        first = b._held.deadline
        fake.wait(lambda: sum(p.endswith("extend") for p, _ in fake.requests) >= 3)
        assert b.valid and b._held.deadline > first
        b.ack()
        thread = c._heart._thread
        if thread is not None:
            thread.join(60)  # it ends when nothing is open
            assert not thread.is_alive()


def test_a_nack_goes_behind_the_heartbeat_under_way() -> None:
    """The server takes an extension of a returned lease for wanting it back: nobody
    would have it, and its groups would wait until it expires."""
    with serving(some_table(), seconds=1.0) as fake, icecore.Client(fake.url) as c:
        b = lease(c)
        under_way, overtaken = threading.Event(), threading.Event()

        def slow(handler: Handler) -> None:
            under_way.set()
            assert not overtaken.wait(0.5), "the nack overtook it"

        fake.fail("extend$", slow)
        fake.fail("nack$", lambda handler: overtaken.set())
        assert under_way.wait(60)
        b.nack()
        assert [p.rpartition("/")[2] for p, _ in fake.requests[1:3]] == ["extend", "nack"]
        assert fake.state(b.lease_id) == "returned" and b.state == "returned"


def test_a_heartbeat_that_finds_the_lease_lost_marks_the_batch() -> None:
    with serving(some_table(), seconds=1.0) as fake, icecore.Client(fake.url) as c:
        b = lease(c)
        with fake.changed:
            fake.leases[b.key]["state"] = "lost"
        fake.wait(lambda: b.state == "lost" or sum(p.endswith("extend") for p, _ in fake.requests) >= 1)
        thread = c._heart._thread
        if thread is not None:
            thread.join(60)
        assert b.state == "lost" and not b.valid
        with pytest.raises(icecore.LeaseLost):
            b.ack()


def test_validity_ends_with_the_deadline(client: icecore.Client, fake: Fake) -> None:
    b = lease(client, heartbeat=False)
    now = [0.0]
    b._held.clock = lambda: now[0]
    now[0] = b._held.deadline - 0.001
    assert b.valid
    now[0] = b._held.deadline
    assert not b.valid and b.state == "open"
    # Nobody else has it yet: the server takes a late ack.
    assert b.ack()["state"] == "acknowledged"


def test_the_deadline_is_the_servers_and_on_the_safe_side(client: icecore.Client, fake: Fake) -> None:
    before = time.monotonic()
    b = lease(client, heartbeat=False)
    assert before + 297 <= b._held.deadline <= time.monotonic() + 300
    b.extend(60)
    assert fake.requests[-1] == (f"/v1/leases/{b.lease_id}/extend", {"lease_seconds": 60})
    assert b._held.deadline <= time.monotonic() + 60


def test_the_first_heartbeat_is_due_by_the_headers_not_by_the_end_of_the_body() -> None:
    """A body that takes longer than a third of the lease: else the lease would lapse before it."""
    now = time.monotonic()
    headers = httpx.Headers({"Date": format_datetime(datetime.now(timezone.utc), usegmt=True), "Icecore-Expires-At": later(300)})
    held = Held("lease-0", "k", None, Answer(200, headers, bytearray(), received=now - 150))
    assert held.valid and held.due <= now


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T09:30:00Z", "2026-01-31T09:30:00.000000Z", "2026-01-31T09:30:00.000000001Z", "2026-01-31T10:30:00+01:00", "2026-01-31T08:30:00.0-01:00"],
)
def test_times(text: str) -> None:
    assert time_of(text).timestamp() == 1769851800.0
    assert abs(time_of(later(5)).timestamp() - time_of(later(0)).timestamp() - 5) < 5


# Fetching ahead (row 25)


def test_prefetch_hands_over_in_order(client: icecore.Client, fake: Fake) -> None:
    with client.prefetch("learner", key="run", idle=0) as ahead:
        got = []
        for b in ahead:
            assert b.valid
            got.append((b.key, len(b)))
            ahead.ack(b)
    assert got == [("run-0", 6), ("run-1", 4), ("run-2", 2)]
    assert {le["state"] for le in fake.leases.values()} == {"acknowledged"}


def test_prefetch_leases_no_more_than_depth_ahead(fake: Fake) -> None:
    with icecore.Client(fake.url) as c, c.prefetch("learner", idle=0) as ahead:
        first = next(ahead)
        fake.wait(lambda: len(fake.leases) == 2)
        with ahead._changed:
            assert ahead._changed.wait_for(lambda: len(ahead._ready) == 1, 60)
        assert len(fake.leases) == 2
        first.ack()
    # What was fetched and not used is returned at the end.
    assert sorted(le["state"] for le in fake.leases.values()) == ["acknowledged", "returned"]


def test_none_is_trained_after_expiry(client: icecore.Client, fake: Fake) -> None:
    """A learner that is slow, and heartbeats that do not get through: a batch that
    lapsed in the queue is not handed over."""
    with client.prefetch("learner", heartbeat=False, idle=0) as ahead:
        first = next(ahead)
        fake.wait(lambda: len(fake.leases) == 2)
        with ahead._changed:
            assert ahead._changed.wait_for(lambda: bool(ahead._ready), 60)
            waiting = ahead._ready[0]
        # Its time passes, and another learner is given its groups.
        waiting._held.deadline = -1.0
        with fake.changed:
            fake.leases[waiting.key]["state"] = "lost"
        second = next(ahead)
        assert second is not waiting and second.valid and len(second) == 2
        assert waiting.state == "lost"
        first.ack()
        second.ack()
        with pytest.raises(StopIteration):
            next(ahead)


def test_a_lapsed_batch_that_nobody_took_is_extended(client: icecore.Client, fake: Fake) -> None:
    with client.prefetch("learner", heartbeat=False, idle=0) as ahead:
        next(ahead).ack()
        with ahead._changed:
            assert ahead._changed.wait_for(lambda: bool(ahead._ready), 60)
            waiting = ahead._ready[0]
        waiting._held.deadline = -1.0
        assert next(ahead) is waiting and waiting.valid
        assert fake.count("extend$") == 1


def test_prefetch_asks_options_anew(client: icecore.Client, fake: Fake) -> None:
    versions = iter(range(10, 20))
    with client.prefetch("learner", key=lambda n: f"s{n}", start=5, idle=0, policy_version=lambda: next(versions)) as ahead:
        for b in ahead:
            b.ack()
    asked = [(body["key"], body["policy_version"]) for path, body in fake.requests if path.endswith("lease")]
    assert asked == [("s5", 10), ("s6", 11), ("s7", 12), ("s8", 13)]


def test_prefetch_raises_what_its_thread_met(client: icecore.Client, fake: Fake) -> None:
    fake.fail("lease$", says(problem(422, "invalid_field")))
    with client.prefetch("learner") as ahead:
        with pytest.raises(icecore.ProblemError, match="invalid_field"):
            next(ahead)
        with pytest.raises(StopIteration):
            next(ahead)


def test_closing_a_prefetcher_wakes_who_waits() -> None:
    with serving() as fake, icecore.Client(fake.url) as c:
        ahead = c.prefetch("learner")
        ended: list[bool] = []
        waiter = threading.Thread(target=lambda: ended.append(next(ahead, None) is None))
        waiter.start()
        fake.wait(lambda: bool(fake.requests))
        ahead.close()
        waiter.join(60)
        assert ended == [True]


# Between processes


def test_a_detached_batch_is_looked_after_where_it_is_unpickled(fake: Fake) -> None:
    with icecore.Client(fake.url) as c:
        b = lease(c)
        b.detach()
        sent = pickle.dumps(b)
        b.close()
        c.close()
        assert fake.state(b.lease_id) == "open"
    again = pickle.loads(sent)
    assert again.valid and again.state == "open" and again.table.equals(b.table) and again.key == b.key
    fake.wait(lambda: sum(p.endswith("extend") for p, _ in fake.requests) >= 1)
    again.ack()
    assert fake.state(b.lease_id) == "acknowledged"
    again._client.close()


def test_a_client_is_pickled_without_its_connections(client: icecore.Client) -> None:
    lease(client)
    again = pickle.loads(pickle.dumps(client))
    assert again is not client and again.url == client.url
    assert pickle.loads(pickle.dumps(client)) is again
    with lease(again) as b:
        b.ack()
    again.close()


# Log-probs back


def test_logprobs_back(client: icecore.Client, fake: Fake) -> None:
    b = lease(client, policy_version=3)
    b.post_logprobs({"tr_0": np.array([np.nan, -1.0, -2.0]), "tr_1": [None, -0.5, -0.25]}, policy_version=4)
    assert fake.posted["tr_1"] == [None, -0.5, -0.25]
    assert np.isnan(fake.posted["tr_0"][0]) and fake.posted["tr_0"][1:] == [-1.0, -2.0]  # type: ignore[arg-type]
    with pytest.raises(icecore.DataError, match="policy_version"):
        b.post_logprobs({"tr_0": [0.0]})
    with pytest.raises(icecore.DataError, match="tr_0"):
        b.post_logprobs({"tr_0": [["no row"]]}, policy_version=4)
    items = [{"index": 0, "id": "tr_0", "status": "refused", "code": "length_mismatch", "message": "3, not 2"}]
    fake.fail("logprobs$", says(reply({"items": items, "ack": "durable"}, 422)))
    with pytest.raises(icecore.IngestError, match="length_mismatch"):
        b.post_logprobs({"tr_0": [0.0]}, policy_version=4)


def test_a_batch_without_a_server() -> None:
    b = icecore.Batch.of_table(some_table())
    assert b.valid and len(b.rows()) == 6
    with b:
        b.ack()
    assert b.state == "acknowledged"
