"""verl's own replay buffer, TransferQueue and advantage code, on rows leased to it."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from types import SimpleNamespace

import pytest
from shapes.leases import Leases
from shapes.trainers import need
from tables import delivered, row

need("verl")
need("transfer_queue")
torch = need("torch")

import ray  # noqa: E402
import transfer_queue as tq  # noqa: E402
import verl.utils.tensordict_utils as tu  # noqa: E402
from icecore.adapters.rows import ready  # noqa: E402
from icecore.adapters.verl import IcecoreManager, agent_loop_output, passed_through, records  # noqa: E402
from icecore.errors import DataError  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.trainer.ppo.v1 import PPOTrainer  # noqa: E402
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer  # noqa: E402


def config(estimator="icecore", **icecore):
    return OmegaConf.create(
        {
            "icecore": icecore,
            "algorithm": {"adv_estimator": estimator, "use_kl_in_reward": False, "gamma": 1.0, "lam": 1.0},
            "actor_rollout_ref": {"rollout": {"n": 2, "temperature": 1.0}},
        }
    )


def table(**more):
    """Two groups: r-a of two rows (A .5, w .5) and r-b (A -1); r-c (A 2) and r-d, never scored."""
    return delivered(
        [
            row([10, 11, 12, 13, 20, 14], [0, 0, 1, 1, 0, 1], [None, None, -0.1, -0.2, None, -0.3], group_id="g_0",
                rollout_id="r-a", reward=1.0, advantage=0.5, weight=0.5, policy_version=3),
            row([10, 15], [0, 1], group_id="g_0", rollout_id="r-a", reward=1.0, advantage=0.5, weight=0.5),
            row([10, 11, 16], [0, 0, 1], group_id="g_0", rollout_id="r-b", reward=0.0, advantage=-1.0),
            row([30, 31, 32], [0, 1, 1], group_id="g_1", rollout_id="r-c", reward=2.0, advantage=2.0),
            row([30, 33, 34], [0, 1, 1], group_id="g_1", rollout_id="r-d"),
        ],
        **more,
    )


def prompts(steps=5, count=2, **more):
    """What verl's trainer hands to its manager: a TensorDict of dataset rows with uids."""
    made = tu.get_tensordict({"uid": [str(uuid.uuid4()) for _ in range(count)], "raw_prompt": [[] for _ in range(count)]})
    tu.assign_non_tensor_data(made, "global_steps", steps)
    for name, value in more.items():
        tu.assign_non_tensor_data(made, name, value)
    return made


@pytest.fixture(scope="module")
def queue():
    # CPUs only as Ray counts them: its controller and store ask for one each.
    folder = tempfile.mkdtemp(prefix="ray-")  # short: it holds sockets
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, configure_logging=False, _temp_dir=folder)
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    yield tq
    tq.close()
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_row_as_verls_agent_loop_output():
    one = ready(Leases(table()).batches[0])[0]
    made = agent_loop_output(one).as_dict()
    assert made["prompts"].tolist() == [10, 11] and made["responses"].tolist() == [12, 13, 20, 14]
    assert made["response_mask"].tolist() == [1, 1, 0, 1]
    assert made["rollout_log_probs"].tolist() == pytest.approx([-0.1, -0.2, 0.0, -0.3])
    assert made["rm_scores"].tolist() == [0.0, 0.0, 0.0, 0.25], "the score is on a trained token"
    assert made["extra_fields"]["icecore"]["trajectory_id"] == "tr_0"


def test_keys_have_one_underscore_left_of_the_rollout():
    prepared = ready(Leases(table()).batches[0])
    keys, fields, tags = records(prepared, ["u-1", "u-2"], 9, "current", -1)
    assert keys == ["u-1_0_0", "u-1_0_1", "u-1_1_0", "u-2_0_0", "u-2_1_0"]
    assert [k.split("_")[0] for k in keys] == [f["uid"] for f in fields]
    assert (tags[0]["min_global_steps"], tags[1]["min_global_steps"]) == (4, 9)
    assert [t["seq_len"] for t in tags] == [6, 2, 3, 3, 2]
    with pytest.raises(DataError, match="2 groups for 1 prompts"):
        records(prepared, ["u-1"], 9)
    with pytest.raises(DataError, match="'a_b' has an underscore"):
        records(prepared, ["a_b", "u"], 9)


def test_the_estimator_gives_scores_on_trained_tokens_only():
    scores = torch.tensor([[0.0, 0.0, 2.0], [0.0, -1.0, 0.0]])
    mask = torch.tensor([[1, 0, 1], [1, 1, 0]])
    advantages, returns = passed_through(scores, mask, config=None, index=["a", "b"])
    assert advantages.tolist() == [[2.0, 0.0, 2.0], [-1.0, -1.0, 0.0]] and returns is advantages


def step(manager, replay, uids_of, steps):
    """One step of verl's synchronous trainer up to its advantages."""
    batch = prompts(steps)
    uids = list(batch["uid"])
    tags = [{"is_prompt": True, "status": "pending", "global_steps": steps} for _ in uids]
    tq.kv_batch_put(keys=uids, partition_id="train", tags=tags)
    manager.generate_sequences(batch)
    meta, _ = replay.sample(global_steps=steps, partition_id="train", batch_size=2)
    trainer = SimpleNamespace(config=config())
    PPOTrainer._compute_advantage(trainer, meta, {})
    data = tq.kv_batch_get(keys=meta.keys, partition_id="train", select_fields=["advantages", "response_mask", "uid"])
    uids_of.append(uids)
    return meta, {k: [round(v, 6) for v in a.tolist()] for k, a in zip(meta.keys, data["advantages"].unbind(), strict=True)}


def test_verl_samples_our_groups_takes_our_advantages_and_says_when_it_is_done(queue):
    client = Leases(table(), table(), table())
    manager = IcecoreManager.create(
        config=config(consumer="v", lease={"max_staleness": 2, "where": {"split": ["train"]}}, unknown_version="current", version_offset=10), client=client,
        llm_client=None, teacher_client=None, reward_loop_worker_handles=None,
    )
    assert core_algos.get_adv_estimator_fn("icecore") is passed_through
    replay = ReplayBuffer("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}), poll_interval=0.01)
    seen: list[list[str]] = []

    meta, advantages = step(manager, replay, seen, 5)
    first, second = seen[0]
    assert advantages == {
        f"{first}_0_0": [0.25, 0.25, 0.0, 0.25],
        f"{first}_0_1": [0.25],
        f"{first}_1_0": [-1.0],
        f"{second}_0_0": [2.0, 2.0],
        f"{second}_1_0": [0.0],
    }
    assert client.asked == [
        {"consumer": "v", "wait": 30.0, "max_staleness": 2, "where": {"split": ["train"]}, "groups": 2, "policy_version": 15}
    ]
    assert json.dumps(client.asked), "nothing of OmegaConf's is left in it"
    assert manager.settle() == 0 and client.states[0] == "open", "verl still holds the rows"
    tq.kv_clear(keys=meta.keys, partition_id="train")  # as verl does after its step

    meta, advantages = step(manager, replay, seen, 6)
    assert client.states == ["acknowledged", "open", "open"]
    assert len(advantages) == 5
    tq.kv_clear(keys=meta.keys, partition_id="train")
    assert manager.settle() == 1 and client.states == ["acknowledged", "acknowledged", "open"]


def test_verls_own_estimators_get_rewards_but_never_a_missing_one(queue):
    client = Leases(table())
    manager = IcecoreManager(config("grpo"), client=client)
    with pytest.raises(DataError, match="rollout r-d has no reward, and verl would take it for 0"):
        manager.generate_sequences(prompts())


def test_verls_own_grpo_counts_rollouts(queue):
    """verl takes each rollout's last row; ours all carry the rollout's reward, so that is the same."""
    rows = [
        row([1, 2], [0, 1], rollout_id="A", reward=1.0), row([1, 3], [0, 1], rollout_id="A", reward=1.0),
        row([1, 4], [0, 1], rollout_id="B", reward=0.0),
    ]
    manager = IcecoreManager(config("grpo", unknown_version="current"), client=Leases(delivered(rows, estimator="none")))
    batch = prompts(7, 1)
    tq.kv_batch_put(
        keys=list(batch["uid"]), partition_id="train", tags=[{"is_prompt": True, "status": "pending", "global_steps": 7}]
    )
    manager.generate_sequences(batch)
    replay = ReplayBuffer("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}), poll_interval=0.01)
    meta, _ = replay.sample(global_steps=7, partition_id="train", batch_size=1)
    PPOTrainer._compute_advantage(SimpleNamespace(config=config("grpo")), meta, {})
    data = tq.kv_batch_get(keys=meta.keys, partition_id="train", select_fields=["advantages"])
    found = {k.split("_", 1)[1]: a.item() for k, a in zip(meta.keys, data["advantages"].unbind(), strict=True)}
    assert found == pytest.approx({"0_0": 0.7071, "0_1": 0.7071, "1_0": -0.7071}, abs=1e-4)
    tq.kv_clear(keys=meta.keys, partition_id="train")


def test_validation_is_left_to_verl():
    manager = IcecoreManager(config(), client=Leases())
    asked = []
    manager._inner = SimpleNamespace(generate_sequences=asked.append)
    batch = prompts(validate=True)
    manager.generate_sequences(batch)
    assert asked == [batch]
