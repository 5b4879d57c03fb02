"""AsyncClient: the same as Client, with await."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from conftest import Server
from fake import Handler, drops, forgets, problem, says, serving, some_table, stream_of
from test_ingest import agent, call

import icecore


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 120))


@pytest.mark.parametrize(
    ("plain", "mirror"),
    [
        (icecore.Client, icecore.AsyncClient),
        (icecore.Batch, icecore.AsyncBatch),
        (icecore.Writer, icecore.AsyncWriter),
        (icecore.Prefetcher, icecore.AsyncPrefetcher),
    ],
)
def test_it_has_all_that_the_other_has(plain: type, mirror: type) -> None:
    # A batch of an event loop is not sent to other processes.
    names = {n for n in vars(plain) if not n.startswith("_")} - {"of_table", "detach"}
    assert names <= {n for n in dir(mirror) if not n.startswith("_")}
    for name in names:
        if inspect.isfunction(getattr(plain, name)):
            ours, theirs = inspect.signature(getattr(plain, name)), inspect.signature(getattr(mirror, name))
            assert [(p.name, p.default, p.kind) for p in ours.parameters.values()] == [
                (p.name, p.default, p.kind) for p in theirs.parameters.values()
            ], name


def test_writing_and_asking(shared_server: Server) -> None:
    async def main() -> None:
        async with icecore.AsyncClient(shared_server.url) as c:
            async with c.writer(max_items=3) as w:
                for t in agent("a", 6):
                    await w.trace(t)
                await w.begin(trace_id="a-9", rollout_id="a", seq=9)
                await w.trace(call("a", 9, [1], [2]))
                await w.rollout("a", task_id="async", split="train")
                await w.finish("a", "succeeded")
                await w.reward(reward_id="a", rollout_id="a", value=1)
            assert [i.status for i in await c.post_traces(call("a", 9, [1], [2]), ack="queryable")] == ["duplicate"]
            found = [r async for r in c.rollouts(task_id="async")]
            assert [(r["traces"], r["complete"], r["reopened"]) for r in found] == [(7, True, False)]
            assert (await c.sql("SELECT count(*) FROM traces WHERE rollout_id = $1", ["a"])).value() == 7
            table = await c.trajectories(rollout_id="a", page_rows=1)
            assert table.num_rows == len([p async for p in c.trajectory_pages(rollout_id="a", page_rows=1)])
            assert (await c.analytics("summary"))["rows"]
            with pytest.raises(icecore.ProblemError, match="sql_syntax"):
                await c.sql("SELEC")

    run(main)


def test_a_writer_reports_refused_items(shared_server: Server) -> None:
    async def main() -> None:
        async with icecore.AsyncClient(shared_server.url) as c:
            w = c.writer(flush_seconds=60)
            await w.trace(call("ar", 1, [1], [2]))
            await w.trace(call("ar", 2, [-1], [2]))
            with pytest.raises(icecore.IngestError) as caught:
                await w.flush()
            assert [(r.index, r.id) for r in caught.value.refused] == [(1, "ar-2")]
            await w.close()
            with pytest.raises(icecore.IcecoreError, match="closed"):
                await w.trace(call("ar", 3, [1], [2]))

    run(main)


def test_a_writer_waits_for_its_server_and_can_give_up(server: Server) -> None:
    async def main() -> None:
        async with icecore.AsyncClient(server.url) as c:
            w = c.writer(flush_seconds=0.0)
            server.kill()
            await w.trace(call("aw", 1, [1], [2]))
            with pytest.raises(icecore.IngestError, match="not acknowledged"):
                await w.flush(timeout=0.1)
            server.start()
            await w.flush()
            server.kill()
            await w.trace(call("aw", 2, [1], [2]))
            with pytest.raises(icecore.IngestError) as caught:
                await w.close(timeout=0.1)
            assert caught.value.unsent == 1

    run(main)


def test_a_lease(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with serving(some_table(), some_table(4)) as fake:
            async with icecore.AsyncClient(fake.url) as c:
                fake.fail("lease$", forgets, says(problem(503, "busy", Retry_After="0")), drops)
                b = await c.lease("learner")
                assert b and len(b) == 6 and b.valid and list(fake.leases) == [b.key]
                fake.fail("ack$", drops)
                await b.ack({"loss": 1})
                await b.ack()
                assert fake.count("/ack$") == 2
                with pytest.raises(RuntimeError):
                    async with await c.lease("learner") as b:  # type: ignore[union-attr]
                        raise RuntimeError("mine")
                assert fake.state(b.lease_id) == "returned"
                assert not await c.lease("learner")
                async with await c.lease("learner") as nothing:
                    assert nothing is None
                assert c.last_wait is not None and c.last_wait.reasons["not_rewarded"] == 3

    run(main)


def test_a_cut_stream_raises() -> None:
    async def main() -> None:
        stream = stream_of(some_table(), lease_id="lease-9", key="k")
        with serving() as fake:
            async with icecore.AsyncClient(fake.url, retry_seconds=0.0) as c:
                for clean in (True, False):
                    for cut in (0, len(stream) // 2, len(stream) - 8, len(stream) - 1):
                        answer = (200, fake.headers("lease-9", "k", stream), stream)
                        fake.fail("lease$", lambda h, a=answer, n=cut, e=clean: h.send(a, n, e))  # type: ignore[misc]
                        with pytest.raises(icecore.StreamError):
                            await c.lease("learner", key="k")
                assert fake.count("ack$") == 0

    run(main)


def test_heartbeats_a_lost_lease_and_a_dropped_one() -> None:
    async def main() -> None:
        with serving(some_table(), some_table(), seconds=1.0) as fake:
            async with icecore.AsyncClient(fake.url) as c:
                b = await c.lease("learner")
                assert b
                while fake.count("extend$") < 2:
                    await asyncio.sleep(0.05)
                assert b.valid
                with fake.changed:
                    fake.leases[b.key]["state"] = "lost"
                while b.state != "lost":
                    await asyncio.sleep(0.05)
                with pytest.raises(icecore.LeaseLost):
                    await b.ack()
                dropped = await c.lease("learner")
                assert dropped
                lease_id = dropped.lease_id
                del dropped
                gc.collect()
                while fake.state(lease_id) != "returned":
                    await asyncio.sleep(0.05)

    run(main)


def test_a_nack_goes_behind_the_heartbeat_under_way() -> None:
    """As in test_lease.py: an extension behind the nack would take the lease back."""
    under_way, overtaken = threading.Event(), threading.Event()

    def slow(handler: Handler) -> None:
        under_way.set()
        assert not overtaken.wait(0.5), "the nack overtook it"

    async def main() -> None:
        with serving(some_table(), seconds=1.0) as fake:
            async with icecore.AsyncClient(fake.url) as c:
                b = await c.lease("learner")
                assert b
                fake.fail("extend$", slow)
                fake.fail("nack$", lambda handler: overtaken.set())
                while not under_way.is_set():
                    await asyncio.sleep(0.01)
                await b.nack()
                assert [p.rpartition("/")[2] for p, _ in fake.requests[1:3]] == ["extend", "nack"]
                assert fake.state(b.lease_id) == "returned"

    run(main)


def test_prefetch() -> None:
    async def main() -> None:
        with serving(some_table(), some_table(4), some_table(2)) as fake:
            async with icecore.AsyncClient(fake.url) as c:
                async with c.prefetch("learner", key="run", idle=0) as ahead:
                    got = []
                    async for b in ahead:
                        got.append((b.key, len(b)))
                        if len(b) > 2:
                            await ahead.ack(b)
                assert got == [("run-0", 6), ("run-1", 4), ("run-2", 2)]
                assert sorted(le["state"] for le in fake.leases.values()) == ["acknowledged", "acknowledged", "returned"]
                fake.fail("lease$", says(problem(422, "invalid_field")))
                async with c.prefetch("learner") as ahead:
                    with pytest.raises(icecore.ProblemError):
                        await ahead.__anext__()
                    with pytest.raises(StopAsyncIteration):
                        await ahead.__anext__()

    run(main)
