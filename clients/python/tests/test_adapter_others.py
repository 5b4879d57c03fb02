"""AReaL, NeMo-RL, OpenRLHF and ART: rows in the shapes that their trainers take."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from icecore.adapters.areal import IcecoreWorkflow
from icecore.adapters.art import tokenized_results
from icecore.adapters.nemo_rl import fields, to_batched_data_dict
from icecore.adapters.openrlhf import Groups, action_ranges, executor, to_response
from icecore.adapters.rows import ready
from icecore.errors import DataError
from shapes import art as art_shape
from shapes.leases import Leases
from shapes.trainers import need
from tables import delivered, row

WORKED = dict(token_ids=[10, 11, 12, 13, 20, 14], loss_mask=[0, 0, 1, 1, 0, 1], logprobs=[None, None, -0.1, -0.2, None, -0.3])


def table(version=3):
    return delivered(
        [
            row(**WORKED, group_id="g", rollout_id="a", reward=1.0, advantage=0.5, weight=0.5, policy_version=version),
            row([10, 11, 15], [0, 0, 1], group_id="g", rollout_id="a", reward=1.0, advantage=0.5, weight=0.5, policy_version=version),
            row([10, 16], [0, 1], group_id="g", rollout_id="b", policy_version=version),
        ]
    )


class Engine:
    version = 5

    def get_version(self):
        return self.version


def test_areal_gets_padded_rows_that_end_trained_and_acknowledges_by_version():
    torch = pytest.importorskip("torch")
    client, engine = Leases(table(), table(), table()), Engine()
    workflow = IcecoreWorkflow(client, "areal", max_head_offpolicyness=1)
    made = asyncio.run(workflow.arun_episode(engine, {}))
    assert made["input_ids"].tolist() == [[10, 11, 12, 13, 20, 14], [10, 11, 15, 0, 0, 0]], "the unscored row is left out"
    assert made["loss_mask"].tolist() == [[0, 0, 1, 1, 0, 1], [0, 0, 1, 0, 0, 0]]
    assert made["versions"].tolist() == [[-1, -1, 3, 3, -1, 3], [-1, -1, 3, -1, -1, -1]]
    assert made["logprobs"][0].tolist() == pytest.approx([0, 0, -0.1, -0.2, 0, -0.3])
    assert made["attention_mask"].sum(1).tolist() == [6, 3] and made["rewards"].tolist() == [0.25, 0.25]
    last = made["attention_mask"].sum(1) - 1
    assert made["loss_mask"][torch.arange(2), last].tolist() == [1, 1], "AReaL puts the reward there"
    assert {k: v.dtype for k, v in made.items()} == {
        "input_ids": torch.int32, "loss_mask": torch.int32, "logprobs": torch.float32, "versions": torch.int32,
        "attention_mask": torch.bool, "rewards": torch.float32,
    }  # fmt: skip
    engine.version = 6
    asyncio.run(workflow.arun_episode(engine, {}))
    assert client.states == ["open", "open", "open"]
    engine.version = 7
    asyncio.run(workflow.arun_episode(engine, {}))
    assert client.states == ["acknowledged", "open", "open"]


def test_areal_needs_versions_or_is_told_and_skips_what_trains_nothing():
    pytest.importorskip("torch")
    with pytest.raises(DataError, match="policy version of trained tokens is not known"):
        asyncio.run(IcecoreWorkflow(Leases(table(None)), "a", max_head_offpolicyness=1).arun_episode(Engine(), {}))
    told = IcecoreWorkflow(Leases(table(None)), "a", max_head_offpolicyness=1, unknown_version="current")
    assert asyncio.run(told.arun_episode(Engine(), {}))["versions"][1].tolist() == [-1, -1, 5, -1, -1, -1]
    none = delivered([row([1, 2], [0, 1])])
    assert asyncio.run(IcecoreWorkflow(Leases(none), "a", max_head_offpolicyness=1).arun_episode(Engine(), {})) is None


def test_a_group_that_raised_is_returned_not_acknowledged():
    """AReaL and OpenRLHF carry on after an episode that raised."""
    pytest.importorskip("torch")
    bad = delivered([row([1, 2], [0, 1], [None, None], group_id="g", reward=1.0, advantage=1.0, policy_version=3)])
    client, engine = Leases(bad, table(), table()), Engine()
    workflow = IcecoreWorkflow(client, "areal", max_head_offpolicyness=0)
    with pytest.raises(DataError, match="no log-prob"):
        asyncio.run(workflow.arun_episode(engine, {}))
    for engine.version in (6, 7):
        asyncio.run(workflow.arun_episode(engine, {}))
    assert client.states == ["returned", "acknowledged", "open"]
    given = Leases(bad, whole("h"), whole("i"))
    groups_ = Groups(given, "openrlhf", 2, lag=1)
    with pytest.raises(DataError, match="no log-prob"):
        asyncio.run(groups_.next("P"))
    for prompt in "PQ":
        asyncio.run(groups_.next(prompt))
    assert given.states == ["returned", "acknowledged", "open"]


def test_nemo_rl_padding_makes_no_two_groups_equal():
    pytest.importorskip("torch")
    rows = [row([7, 5], [0, 1], group_id="g", reward=0.0, advantage=1.0), row([7, 0, 5], [0, 0, 1], group_id="h", reward=0.0, advantage=1.0)]
    prompts = fields(ready(Leases(delivered(rows)).batches[0]), pad_token_id=1)["prompt_ids_for_adv"].tolist()
    assert prompts[0] != prompts[1]


def test_nemo_rl_groups_by_prompt_so_two_groups_with_one_prompt_are_told_apart(monkeypatch):
    pytest.importorskip("torch")
    rows = [row([1, 2, t], [0, 0, 1], group_id=g, rollout_id=f"{g}{t}", reward=0.0, advantage=1.0) for g in "gh" for t in (5, 6)]
    rows.append(row([1, 7], [0, 1], group_id="h", rollout_id="h7"))
    made = fields(ready(Leases(delivered(rows)).batches[0]), pad_token_id=9, multiple_of=4)
    prompts = [tuple(p) for p in made["prompt_ids_for_adv"].tolist()]
    assert len(set(prompts[:2])) == 1 and len(set(prompts[2:])) == 1 and prompts[0] != prompts[2]
    assert made["input_ids"].tolist()[0] == [1, 2, 5, 9] and made["input_lengths"].tolist() == [3, 3, 3, 3, 2]
    assert made["token_mask"].tolist()[0] == [0, 0, 1, 0] and made["sample_mask"].tolist() == [1, 1, 1, 1, 0]
    assert made["advantages"].tolist()[0] == [0, 0, 1, 0] and np.isnan(made["total_reward"].tolist()[4])
    module = ModuleType("nemo_rl.distributed.batched_data_dict")
    module.BatchedDataDict = dict
    for name in ("nemo_rl", "nemo_rl.distributed", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    assert set(to_batched_data_dict(Leases(delivered(rows)).batches[0], 9)) == set(made)


def test_openrlhf_ranges_are_the_trained_tokens():
    one = ready(Leases(table()).batches[0])[0]
    assert action_ranges(one) == [(2, 4), (5, 6)]
    made = to_response(one, "p", "l")
    assert made["reward"] == 0.25 and made["scores"] == 1.0 and made["observation_tokens"] == [10, 11, 12, 13, 20, 14]
    assert made["rollout_log_probs"] == pytest.approx([0, 0, -0.1, -0.2, 0, -0.3])


def whole(name, n=2):
    return delivered([row([1, 5 + i], [0, 1], group_id=name, rollout_id=f"{name}{i}", reward=1.0, advantage=i - 0.5) for i in range(n)])


def test_openrlhf_answers_a_prompt_with_the_rollouts_of_one_group():
    client = Leases(whole("g"), whole("h"), whole("i"))
    given = Groups(client, "openrlhf", 2, lag=2)

    async def ask():
        return [(await given.next(p)).row.rollout_id for p in ("P", "Q", "P", "Q", "P")]

    assert asyncio.run(ask()) == ["g0", "h0", "g1", "h1", "i0"]
    assert client.states == ["acknowledged", "open", "open"]


def test_openrlhf_takes_means_by_position_so_a_group_must_be_whole():
    with pytest.raises(DataError, match="group g has rollouts of 2, unscored rows.*needs 2 scored rollouts"):
        asyncio.run(Groups(Leases(table()), "openrlhf", 2, lag=2).next("P"))


def test_openrlhf_accepts_the_executor():
    """Its engine demands a subclass of AgentExecutorBase; runs where OpenRLHF is installed."""
    agent = need("openrlhf.utils.agent")
    made = executor(lambda: Leases(whole("g")), "openrlhf", 2, lag=1)
    assert issubclass(made, agent.AgentExecutorBase)
    response = asyncio.run(made().execute("P", "L", SimpleNamespace(), 16, None, None))
    assert response["prompt"] == "P" and response["observation_tokens"] == [1, 5]


def test_art_weights_rollouts_not_rows(monkeypatch):
    """AGL#593, by shape: a rollout of two rows and one of one row, half the loss each."""
    module = ModuleType("art.preprocessing.tokenize")
    module.TokenizedResult = art_shape.TokenizedResult
    for name in ("art", "art.preprocessing", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    scored = {"reward": 1.0, "advantage": 0.5}
    rows = [
        row(**WORKED, rollout_id="a", **scored),
        row([10, 11, 15], [0, 0, 1], rollout_id="a", **scored),
        row([10, 16], [0, 1], rollout_id="b", **scored),
    ]
    a, a2, b = tokenized_results(Leases(delivered(rows)).batches[0])
    assert art_shape.shares([a, a2, b]) == pytest.approx([3 / 8, 1 / 8, 1 / 2])
    assert a.assistant_mask == [0, 0, 1, 1, 0, 1] and np.isnan(a.logprobs).tolist() == [True, True, False, False, True, False]
    assert a.prompt_id == a2.prompt_id != b.prompt_id and (a.prompt_length, b.prompt_length) == (2, 1)


def test_art_packs_our_rows_and_shares_prompts():
    pack = pytest.importorskip("art.preprocessing.pack", reason="ART is not in requirements-trainers.txt")
    results = tokenized_results(Leases(table()).batches[0])
    assert [r.weight for r in results] == [0.25, 0.25], "one over the trained tokens of the rollout"
    packed = pack.packed_tensors_from_tokenized_results(results, 16, verbosity=0)
    ids, mask = packed["tokens"][0], packed["assistant_mask"][0]
    assert ids[mask].tolist() == [12, 13, 14, 15]
    assert ids[: 6 + 1].tolist() == [10, 11, 12, 13, 20, 14, 15], "the second row's prompt is the first's"
    assert packed["logprobs"][0][mask].tolist() == pytest.approx([-0.1, -0.2, -0.3, -0.5])
    assert packed["advantages"][0][~mask].abs().sum() == 0
