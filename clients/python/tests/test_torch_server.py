"""Batches against the real server: workers, forks, and ranks that must end together."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from tables import SCHEMA

import icecore

torch = pytest.importorskip("torch")

from icecore.checks import check  # noqa: E402
from icecore.torch import Batches, TensorBatch, _Keeper  # noqa: E402


# That a machine has fewer processors than workers says nothing here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def fill(client: icecore.Client, groups: int, rollouts: int = 2) -> None:
    """Groups that are ready; rollout r of group g samples the ids 100·g + r and so on."""
    names = [(g, r, f"g{g}-r{r}") for g in range(groups) for r in range(rollouts)]
    client.post_traces(
        {
            "trace_id": name,
            "rollout_id": name,
            "seq": 0,
            "prompt_token_ids": [1, 2, 3],
            "response_token_ids": [100 * g + r + i for i in range(3)],
            "response_logprobs": [-0.5, None, -0.25],
            "policy_version": 3,
        }
        for g, r, name in names
    )
    for g, r, name in names:
        client.put_rollout(name, group_id=f"g{g}", group_size=rollouts, sample_index=r)
        client.finish(name, "succeeded")
    client.post_rewards({"reward_id": name, "rollout_id": name, "value": float(r)} for _, r, name in names)


def loader(batches: Batches, workers: int, **options: Any) -> Any:
    return torch.utils.data.DataLoader(batches, batch_size=None, num_workers=workers, **options)


def acknowledged(client: icecore.Client, consumer: str = "learner") -> tuple[int, int]:
    done = client.consumer(consumer)["acknowledged"]
    return done["groups"], done["rows"]


def test_a_lease_has_the_schema_of_the_test_tables(client: icecore.Client) -> None:
    """Else the other tests would test something else."""
    fill(client, 1)
    batch = client.lease("learner")
    assert batch
    assert batch.table.schema.equals(SCHEMA, check_metadata=False)
    assert sorted(r.advantage for r in batch.rows()) == pytest.approx([-0.70710578, 0.70710578])
    for r in batch.rows():
        check(r, allow_missing=True)
    batch.ack()


def test_workers_lease_for_themselves_and_no_group_is_split(client: icecore.Client) -> None:
    """Rows 17 and 18: 10 rows in groups of 2 over 4 forked workers, of a client used before: 10 rows, not 40."""
    fill(client, 5)
    assert client.status()  # its connection is open when the workers fork
    seen: list[str] = []
    waiting: list[TensorBatch] = []
    for batch in loader(Batches(client, "learner", idle=0, groups=1), 4, multiprocessing_context="fork"):
        assert isinstance(batch, TensorBatch) and batch.valid
        assert [[len(rows) for rows in rollouts] for rollouts in batch.groups()] == [[1, 1]]
        seen += [r.id for r in batch.rows()]
        waiting.append(batch)
    assert len(seen) == len(set(seen)) == 10
    for batch in waiting:  # also after the workers are gone
        batch.ack()
    assert acknowledged(client) == (5, 10)


def test_spawned_workers_too(client: icecore.Client) -> None:
    fill(client, 2)
    for batch in loader(Batches(client, "learner", idle=0, groups=1), 1, multiprocessing_context="spawn"):
        batch.ack()
    assert acknowledged(client) == (2, 4)


def until(happens: Any) -> Any:
    """Asks again until it does; gives up only when something must be broken."""
    pause = threading.Event()
    for _ in range(2400):
        if found := happens():
            return found
        pause.wait(0.05)
    raise AssertionError("it did not happen")


def test_what_waits_in_a_loader_is_kept_alive(client: icecore.Client) -> None:
    fill(client, 1)
    iterator = iter(loader(Batches(client, "learner", lease_seconds=2, steps=1), 1))

    def lease() -> Any:
        found = [c for c in client.consumers() if c["consumer"] == "learner"]
        return found and found[0]["open_leases"]

    first = until(lease)[0]["expires_at"]
    # Nobody has taken it, and it is extended past where it would have ended.
    until(lambda: lease() and lease()[0]["created_at"] < first < lease()[0]["expires_at"])
    batch = next(iterator)
    assert batch.valid and not client.lease("learner")
    batch.ack()
    assert acknowledged(client) == (1, 2)


def test_a_worker_lets_go_of_what_the_main_process_settles_or_extends(client: icecore.Client) -> None:
    """Extending a lease that was returned takes it back, so the worker looks first."""
    fill(client, 3)
    batches = [client.lease("learner", groups=1, heartbeat=False) for _ in range(3)]
    for batch, end in zip(batches, ("nack", "extend", "ack"), strict=True):
        assert batch
        keeper = _Keeper(batch._held, batch.meta["expires_at"])
        for _ in range(2):  # alone it looks, extends, looks, extends
            before = client.lease_state(batch.lease_id)["expires_at"]
            client._send(keeper.extend())
            assert client.lease_state(batch.lease_id)["expires_at"] == before
            client._send(keeper.extend())
            assert client.lease_state(batch.lease_id)["expires_at"] > before and keeper.open
        getattr(batch, end)()
        after = client.lease_state(batch.lease_id)
        client._send(keeper.extend())
        assert not keeper.open
        assert client.lease_state(batch.lease_id) == after
        batch.close()


def rank_main(rank: int, world: int, url: str, meeting: str, idle: float, told: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        client = icecore.Client(url)
        seen = []
        for batch in Batches(client, "learner", key="run", idle=idle, max_groups=2, keep_groups_together=True):
            seen.append((batch.key, batch.shard, sorted(r.rollout_id for r in batch.rows())))
            batch.ack()
        told.put((rank, seen))
        client.close()
    finally:
        torch.distributed.destroy_process_group()


def test_ranks_see_the_same_number_of_batches(client: icecore.Client, server: Server, tmp_path: Path, monkeypatch: Any) -> None:
    """Row 16, pytorch#141069: 7 rows over 2 ranks, then the end; nobody ends early, every row is seen once."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    fill(client, 7, rollouts=1)
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    arguments = (2, server.url, str(tmp_path / "meeting"), 0.0, told)
    ranks = [context.Process(target=rank_main, args=(rank, *arguments)) for rank in range(2)]
    for process in ranks:
        process.start()
    seen = dict(told.get(timeout=300) for _ in ranks)  # a rank that died says nothing
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    assert [key for key, _, _ in seen[0]] == [key for key, _, _ in seen[1]] == [f"run-{n}" for n in range(4)]
    assert {shard for _, shard, _ in seen[0]} == {0} and {shard for _, shard, _ in seen[1]} == {1}
    rows = [rollout for rank in seen.values() for _, _, rollouts in rank for rollout in rollouts]
    assert sorted(rows) == [f"g{g}-r0" for g in range(7)]
    assert acknowledged(client) == (7, 7)


def test_a_killed_learner_gets_its_batch_again(client: icecore.Client) -> None:
    """Acknowledged after the step, not when handed over: a crash in between redelivers."""
    fill(client, 2)
    batches = iter(Batches(client, "learner", groups=1))
    done = next(batches)
    done.ack()
    lost = next(batches)
    ids = [r.id for r in lost.rows()]
    batches.close()  # else its poll under way could take a group before the lease below
    client._heart._held.clear()  # as if the process were gone: nobody extends it
    assert client.seek("learner", to="beginning")["cancelled_leases"] >= 1
    with pytest.raises(icecore.LeaseLost):
        lost.ack()
    assert [r.id for batch in [client.lease("learner", groups=2)] if batch for r in batch.rows()][-2:] == ids

