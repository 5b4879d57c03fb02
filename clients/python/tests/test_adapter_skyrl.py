"""SkyRL: what its generator returns, by shape, and the advantages that its trainer takes from it."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import pytest
from icecore.adapters.skyrl import IcecoreGenerator, passed_through
from icecore.errors import DataError
from shapes import skyrl as shape
from shapes.leases import Leases
from tables import delivered, row


@pytest.fixture
def registered(monkeypatch):
    """The names that the adapter imports from SkyRL; gives what was registered."""
    found: dict[str, object] = {}
    base, utils = ModuleType("skyrl.train.generators.base"), ModuleType("skyrl.backends.skyrl_train.utils.ppo_utils")
    base.TrajectoryID = shape.TrajectoryID
    utils.AdvantageEstimatorRegistry = SimpleNamespace(list_available=lambda: list(found), register=found.__setitem__)
    for module in (base, utils):
        parts = module.__name__.split(".")
        for end in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
    for module in (base, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def table(**second):
    rows = [
        row([10, 11, 12, 20, 14], [0, 0, 1, 0, 1], [None, None, -0.1, None, -0.3], group_id="g", rollout_id="a",
            reward=1.0, advantage=0.5, weight=0.5),
        row([10, 15], [0, 1], group_id="g", rollout_id="a", reward=1.0, advantage=0.5, weight=second.get("weight", 0.5)),
        row([10, 16], [0, 1], group_id="g", rollout_id="b", finish_reason="length"),
        row([30, 31], [0, 1], group_id="h", rollout_id="c", reward=0.0, advantage=-1.0),
    ]  # fmt: skip
    return delivered(rows)


def asked(phase="train", step=4):
    uids = ["u1", "u1", "u2", "u2"]
    return {
        "prompts": [[]] * 4,
        "trajectory_ids": [shape.TrajectoryID(u, i % 2) for i, u in enumerate(uids)],
        "batch_metadata": shape.BatchMetadata(step, phase),
    }


def test_rows_stand_by_instance_and_rollout(registered):
    client = Leases(table(), table())
    generator = IcecoreGenerator(client, "skyrl", max_staleness=1)
    out = asyncio.run(generator.generate(asked()))
    shape.demand(out)
    assert [(t.instance_id, t.repetition_id) for t in out["trajectory_ids"]] == [("u1", 0), ("u1", 0), ("u1", 1), ("u2", 0)]
    assert out["prompt_token_ids"][0] == [10, 11] and out["response_ids"][0] == [12, 20, 14]
    assert out["loss_masks"] == [[1, 0, 1], [1], [0], [1]] and out["rewards"] == [0.25, 0.25, 0.0, -1.0]
    assert out["rollout_logprobs"][0] == pytest.approx([-0.1, 0.0, -0.3])
    assert out["stop_reasons"] == ["stop", "stop", "length", "stop"]
    assert out["rollout_metrics"] == {"icecore/reward": 0.5}
    assert client.asked == [{"consumer": "skyrl", "wait": 30.0, "max_staleness": 1, "groups": 2, "policy_version": 4}]
    asyncio.run(generator.generate(asked()))
    assert client.states == ["acknowledged", "open"]


def test_the_trainer_takes_our_advantages(registered):
    torch = pytest.importorskip("torch")
    out = asyncio.run(IcecoreGenerator(Leases(table()), "skyrl").generate(asked()))
    assert registered == {"icecore": passed_through}
    assert shape.advantages(out, passed_through, torch) == [[0.25, 0, 0.25], [0.25], [0.0], [-1.0]]


def test_rows_of_a_rollout_share_their_weight(registered):
    with pytest.raises(DataError, match="rollout a have several weights"):
        asyncio.run(IcecoreGenerator(Leases(table(weight=0.1)), "skyrl").generate(asked()))


def test_a_missing_reward_is_not_0(registered):
    with pytest.raises(DataError, match="rollout b has no reward"):
        asyncio.run(IcecoreGenerator(Leases(table()), "skyrl", score="reward").generate(asked()))
    assert registered == {}


def test_evaluation_goes_to_a_generator_of_skyrls_own(registered):
    with pytest.raises(DataError, match="validation="):
        asyncio.run(IcecoreGenerator(Leases(), "skyrl").generate(asked("eval")))

    class Own:
        async def generate(self, input_batch):
            return "theirs"

    assert asyncio.run(IcecoreGenerator(Leases(), "skyrl", validation=Own()).generate(asked("eval"))) == "theirs"
