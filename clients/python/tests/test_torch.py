"""Tensors of batches, and Batches in one process, in workers, after forks and over ranks.

The leases are those of a small client without a server; test_torch_server.py does
the same against the real one.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import delivered, row

torch = pytest.importorskip("torch")

from icecore.checks import fill_missing  # noqa: E402
from icecore.errors import DataError, IcecoreError, LeaseLost  # noqa: E402
from icecore.lease import Batch  # noqa: E402
from icecore.packing import pack  # noqa: E402
from icecore.padding import pad  # noqa: E402
from icecore.prefetch import Prefetcher  # noqa: E402
from icecore.rows import rows_of  # noqa: E402
from icecore.tensors import joined  # noqa: E402
from icecore.torch import Batches, TensorBatch, row_advantages, to_tensors  # noqa: E402


class Leases:
    """Stands in for a Client: whole tables, each leased once, or by number of the key."""

    def __init__(self, tables: list[Any]) -> None:
        self.tables = tables
        self.asked: list[dict[str, Any]] = []
        self.given: list[Batch] = []
        self.lock = threading.Lock()

    def lease(self, consumer: str, **options: Any) -> Batch | None:
        with self.lock:
            self.asked.append({"consumer": consumer, **options})
            n = len(self.given)
            if n == len(self.tables):
                return None
            batch = Batch.of_table(self.tables[n], lease_id=f"lease-{n}", key=options["key"])
            self.given.append(batch)
            return batch

    def prefetch(self, consumer: str, depth: int = 1, *, key=None, start=0, idle=None, **options: Any) -> Prefetcher:
        return Prefetcher(self, consumer, depth, key, start, idle, options)  # type: ignore[arg-type]


def table(*lengths: int, first: int = 0, **columns: Any) -> Any:
    made = []
    for i, n in enumerate(lengths):
        mask = [int(t > 0) for t in range(n)]
        made.append(row(range(first + 10 * i, first + 10 * i + n), mask, **{"advantage": i + 1.0, "weight": 0.5} | columns))
    return delivered(made)


def test_rows_end_to_end():
    batch = TensorBatch(Batch.of_table(table(3, 2)))
    t = batch.tensors()
    assert {name: v.dtype for name, v in t.items()} == {
        "tokens": torch.int32,
        "mask": torch.bool,
        "logprobs": torch.float32,
        "cu_seqlens": torch.int32,
        "advantages": torch.float32,
    }
    assert t["tokens"].tolist() == [0, 1, 2, 10, 11]
    assert t["mask"].tolist() == [False, True, True, False, True]
    assert t["logprobs"].isnan().tolist() == [True, False, False, True, False]
    assert t["cu_seqlens"].tolist() == [0, 3, 5]
    assert t["advantages"].tolist() == [0.5, 1.0]
    assert row_advantages(t).tolist() == [0, 0.5, 0.5, 0, 1.0]
    assert batch.tensors(int64=True)["tokens"].dtype == torch.int64
    assert batch.tensors(device="cpu")["tokens"].tolist() == t["tokens"].tolist()


@pytest.mark.parametrize("part", [slice(0, 5), slice(1, 4), slice(2, 3), slice(0, 0)])
def test_any_rows_of_any_chunks(part):
    joined = pa.concat_tables([table(3, 2), table(4, 1, first=50), table(5, first=90)])
    rows = rows_of(joined)[part]
    for copy in (True, False):
        t = to_tensors(rows, copy=copy)
        assert t["tokens"].tolist() == [x for r in rows for x in r.tokens.tolist()]
        assert t["mask"].tolist() == [x for r in rows for x in r.mask.tolist()]
        want = np.concatenate([r.logprobs for r in rows] or [np.zeros(0, np.float32)])
        np.testing.assert_array_equal(t["logprobs"].numpy(), want)
        assert t["cu_seqlens"].diff().tolist() == [len(r) for r in rows]


def test_writing_to_a_tensor_leaves_arrow_alone():
    """Row 21, pytorch#5442, miles#703. Also from packs and blocks, which are copies themselves."""
    delivery = table(3, 2)
    before = delivery.to_pylist()
    batch = TensorBatch(Batch.of_table(delivery))
    rows = batch.rows()
    for t in (batch.tensors(), to_tensors(pack(rows, 100)[0]), to_tensors(pad(rows, "right", 0), copy=False)):
        t["tokens"] += 1
        t["mask"].logical_not_()
        t["logprobs"] += 1
    assert delivery.to_pylist() == before


def complete(*lengths: int) -> Any:
    """Every log-prob is known, so that Arrow holds them without nulls."""
    return delivered(row(range(n), [int(t > 0) for t in range(n)], [-0.5] * n, advantage=1.0) for n in lengths)


def test_views_are_the_memory_of_arrow_when_asked_for():
    delivery = complete(3, 2, 4)
    rows = rows_of(delivery)
    t = to_tensors(rows[1:], copy=False)
    for name, column in (("tokens", "token_ids"), ("mask", "loss_mask"), ("logprobs", "logprobs")):
        values = delivery[column].chunk(0).values.to_numpy()
        assert t[name].data_ptr() == values[3:].__array_interface__["data"][0], name
        assert to_tensors(rows[1:])[name].data_ptr() != t[name].data_ptr()


def test_a_view_keeps_its_batch_alive():
    t = to_tensors(rows_of(complete(3, 2)), copy=False)
    assert t["tokens"].tolist() == [0, 1, 2, 0, 1]


def test_only_one_owners_memory_is_viewed_as_one():
    """Neighbours in memory that die apart."""
    memory = np.arange(6, dtype=np.int32).tobytes()
    halves = [np.frombuffer(memoryview(memory)[at : at + 12], np.int32) for at in (0, 12)]
    assert [part.tolist() for part in joined(halves, np.int32)] == [[0, 1, 2], [3, 4, 5]]
    assert [part.tolist() for part in joined([halves[0][:1], halves[0][1:]], np.int32)] == [[0, 1, 2]]


def test_rows_without_a_reward_are_not_trained():
    delivery = delivered([row([1, 2], [0, 1], advantage=2.0), row([3, 4], [0, 1])])
    for copy in (True, False):
        t = to_tensors(rows_of(delivery), copy=copy)
        assert t["mask"].tolist() == [False, True, False, False]
        assert t["advantages"].tolist() == [2.0, 0.0]
    without = to_tensors(rows_of(delivered([row([1, 2], [0, 1])], estimator="none")))
    assert without["mask"].tolist() == [False, True] and without["advantages"].isnan().all()
    assert row_advantages(without).isnan().tolist() == [False, True]


def test_changed_rows_are_taken_as_they_are():
    rows = [fill_missing(r, "mask") for r in rows_of(delivered([row([9, 1, 2], [0, 1, 1], [None, None, -0.5], advantage=1.0)]))]
    t = to_tensors(rows, copy=False)
    assert t["mask"].tolist() == [False, False, True] and t["logprobs"].tolist() == [0, 0, -0.5]


def test_packs_and_blocks_by_name():
    rows = rows_of(table(3, 2))
    (p,) = pack(rows, 100)
    assert to_tensors(p, int64=True)["tokens"].dtype == torch.int64
    assert to_tensors(p)["cu_seqlens"].tolist() == [0, 3, 5]
    block = to_tensors(pad(rows, "left", 0))
    assert block["attention_mask"].tolist() == [[True] * 3, [False, True, True]]
    # Cross entropy of a model's logits takes them as they are.
    logits = torch.zeros(len(p), 20)
    targets = to_tensors(p, int64=True)["tokens"][1:]
    assert logits[:-1].log_softmax(-1).gather(1, targets[:, None]).shape == (4, 1)


def test_pinning_without_an_accelerator_is_plain_memory():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    batch = TensorBatch(Batch.of_table(table(3, 2)), pin=True)
    assert batch.tensors()["tokens"].tolist() == [0, 1, 2, 10, 11]
    assert batch.pin_memory() is batch
    assert batch.tensors(int64=True)["tokens"].dtype == torch.int64
    assert batch.tensors(device="cpu")["mask"].tolist() == [False, True, True, False, True]


def test_batches_come_in_order_and_are_acknowledged_by_hand():
    leases = Leases([table(2), table(3), table(4)])
    batches = Batches(leases, "learner", idle=0, groups=8, policy_version=lambda: 7)
    seen = []
    for batch in batches:
        assert batch.state == "open"  # not acknowledged by being handed over
        seen.append(len(batch.rows()[0]))
        assert batches.ack(batch, {"loss": 0.5})["state"] == "acknowledged"
    assert seen == [2, 3, 4]
    assert [b.state for b in leases.given] == ["detached"] * 3  # taken over by what was yielded
    asked = leases.asked[0]
    assert (asked["consumer"], asked["groups"], asked["policy_version"]) == ("learner", 8, 7)
    assert "shards" not in asked
    assert not hasattr(batches, "__len__")


def test_what_was_only_fetched_ahead_is_returned():
    leases = Leases([table(2), table(3), table(4)])
    iterator = iter(Batches(leases, "learner"))
    batch = next(iterator)
    iterator.close()
    assert batch.state == "open"  # its holder still trains on it
    batch.ack()
    assert {b.state for b in leases.given[1:]} <= {"returned"}


def test_steps_end_it():
    leases = Leases([table(2)] * 9)
    batches = list(Batches(leases, "learner", key="run", start=5, steps=3))
    assert [b.key for b in batches] == ["run-5", "run-6", "run-7"]
    assert all(b.state == "open" for b in batches)


def test_a_loader_without_workers():
    leases = Leases([table(2), table(3)])
    loader = torch.utils.data.DataLoader(Batches(leases, "learner", idle=0), batch_size=None)
    assert [len(b.rows()[0]) for b in loader] == [2, 3]


def test_a_batch_travels_to_another_process_whole():
    batch = TensorBatch(Batch.of_table(table(3, 2)))
    batch.detach()
    there = pickle.loads(pickle.dumps(batch))
    assert isinstance(there, TensorBatch) and there.state == "open" and there.valid
    assert there.table.equals(batch.table) and there.meta == batch.meta
    assert there.tensors()["tokens"].tolist() == [0, 1, 2, 10, 11]


def test_ranks_share_a_key_and_each_has_its_shard(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    leases = Leases([table(2), table(3)])
    list(Batches(leases, "learner", key="run", steps=2))
    assert [(a["key"], a["shard"], a["shards"]) for a in leases.asked[:2]] == [("run-0", 1, 2), ("run-1", 1, 2)]
    given = Leases([table(2)])
    list(Batches(given, "learner", key="run", steps=1, rank=3, world=4))
    assert (given.asked[0]["shard"], given.asked[0]["shards"]) == (3, 4)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("ranks need one key", {"rank": 0, "world": 2}),
        ("idle: ranks end together only", {"rank": 0, "world": 2, "key": "run", "idle": 1.0}),
        ("shards follows from world", {"rank": 0, "world": 2, "key": "run", "shards": 2}),
        ("both rank and world", {"rank": 0}),
        ("rank 2 of 2", {"rank": 2, "world": 2, "key": "run"}),
    ],
)
def test_ranks_that_could_not_agree_are_refused(message, options):
    with pytest.raises(ValueError, match=message):
        Batches(Leases([]), "learner", **options)


def test_a_rank_that_lost_a_batch_and_cannot_tell_the_others_stops():
    leases = Leases([table(2), table(3), table(4)])
    iterator = iter(Batches(leases, "learner", key="run", rank=0, world=2))
    first = next(iterator)
    first.ack()
    lease = leases.lease

    def lost(consumer: str, **options: Any) -> Batch | None:
        batch = lease(consumer, **options)
        if batch and batch.key == "run-2":
            batch._held.state = "lost"
        return batch

    leases.lease = lost  # type: ignore[method-assign]
    with pytest.raises(IcecoreError, match="rank 0 lost the lease run-2"):
        for _ in range(3):
            next(iterator).ack()
            leases.tables.append(table(2))


class Meeting:
    """Two ranks in threads that tell each other what they have, in place of a process group."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=60)
        self.said: dict[int, tuple[int, int]] = {}
        self.rounds = 0

    def exchange(self, rank: int, number: int, state: int) -> list[tuple[int, int]]:
        self.rounds += 1
        assert self.rounds < 100, "they never agree"
        self.said[rank] = number, state
        self.barrier.wait()
        seen = [self.said[0], self.said[1]]
        self.barrier.wait()
        return seen


class Numbered(Leases):
    """Gives batch n for the key run-n; what is in nothing only when asked again, what is in
    lapsed as one that lapsed unused, and what is in lost not at all."""

    def __init__(self, batches: int, nothing: set[int], lapsed: set[int], lost: set[int]) -> None:
        super().__init__([])
        self.batches, self.nothing, self.lapsed, self.lost = batches, nothing, lapsed, lost

    def lease(self, consumer: str, **options: Any) -> Batch | None:
        n = int(options["key"].rpartition("-")[2])
        if n in self.nothing or n >= self.batches:
            self.nothing.discard(n)
            return None
        if n in self.lost:
            raise LeaseLost(409, "lease_lost", "its groups were given away")
        batch = Batch.of_table(table(2), lease_id=f"lease-{n}", key=options["key"])
        if n in self.lapsed:
            batch._held.state = "lost"
        self.given.append(batch)
        return batch


NONE: tuple[Any, Any] = ({}, {})


@pytest.mark.parametrize(
    ("nothing", "lapsed", "lost", "expect"),
    [
        (NONE, NONE, NONE, [0, 1, 2, 3]),
        (({}, {1}), NONE, NONE, [0, 1, 2, 3]),  # it was too early for one rank: it asks again
        (({0}, {3}), NONE, NONE, [0, 1, 2, 3]),
        (NONE, ({}, {1}), NONE, [0, 2, 3]),  # one rank lost its shard: none trains on that batch
        (({2}, {}), ({1}, {2}), NONE, [0, 3]),
        (NONE, ({}, {3}), NONE, [0, 1, 2]),  # and then the end
        (NONE, ({0, 1, 2, 3}, {}), NONE, []),
        (NONE, NONE, ({}, {1}), [0, 2, 3]),  # gone before one rank had fetched it
        (NONE, NONE, ({1, 2}, {1, 2}), [0, 3]),  # gone for all
        (({}, {2}), ({0}, {}), ({}, {3}), [1, 2]),
    ],
)
def test_ranks_that_differ_agree(monkeypatch, nothing, lapsed, lost, expect):
    monkeypatch.setattr("icecore.torch.gather", lambda number, state, group: group(number, state))
    meeting = Meeting()
    seen: dict[int, list[Any]] = {}
    leases = [Numbered(4, set(nothing[rank]), set(lapsed[rank]), set(lost[rank])) for rank in range(2)]

    def run(rank: int) -> None:
        batches = Batches(
            leases[rank], "learner", key="run", rank=rank, world=2, group=lambda *said: meeting.exchange(rank, *said)
        )
        batches._agreeing, batches._idle = True, 0
        seen[rank] = [batch for batch in batches if batch.ack()]

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    assert [b.key for b in seen[0]] == [b.key for b in seen[1]] == [f"run-{n}" for n in expect]
    for rank in range(2):  # what was not handed over is returned
        assert {b.state for b in leases[rank].given} <= {"detached", "returned", "lost"}


def test_more_tokens_than_int32_counts_are_refused():
    (r,) = rows_of(table(2))

    class Long:
        def __init__(self) -> None:
            self.row = r

        def __len__(self) -> int:
            return 2**31

        def __getattr__(self, name: str) -> Any:
            return getattr(r, name)

    with pytest.raises(DataError, match="2147483648 tokens are more than int32 counts"):
        to_tensors([Long()])  # type: ignore[list-item]
