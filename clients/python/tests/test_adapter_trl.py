"""TRL's own trainers, a tiny model on the CPU, and rows leased to them."""

from __future__ import annotations

import functools
import math
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from shapes.leases import Leases
from shapes.trainers import need
from tables import delivered, row

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
need("trl")
torch = need("torch")

import trl.experimental.async_grpo.packing as packing  # noqa: E402
from datasets import Dataset  # noqa: E402
from icecore.adapters.trl import RolloutFunction, RolloutWorker  # noqa: E402
from icecore.errors import DataError  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer  # noqa: E402

VOCABULARY = 48


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random model of a few thousand parameters, and its tokenizer."""
    path = tmp_path_factory.mktemp("model")
    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), eos_token="w1", pad_token="w2"
    )
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, eos_token_id=1, pad_token_id=2,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    return str(path)


@functools.cache
def loaded(path):
    return Qwen2ForCausalLM.from_pretrained(path).eval()


def behaviour(path, ids, shift=0.0):
    """The model's log-prob of each token given those before it (T), moved by shift."""
    net = loaded(path)
    with torch.no_grad():
        scores = net(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [None, *(float(scores[t - 1, ids[t]]) + shift for t in range(1, len(ids)))]


class FlashOnCPU:
    """flash_attn_varlen_func for tests: plain attention per sequence, causal from the end."""

    @staticmethod
    def flash_attn_varlen_func(q, k, v, cu_q, cu_k, max_q, max_k, softmax_scale=None, causal=True, window_size=(-1, -1)):
        out = []
        for i in range(len(cu_q) - 1):
            a, b = q[cu_q[i] : cu_q[i + 1]], k[cu_k[i] : cu_k[i + 1]]
            scores = torch.einsum("qhd,khd->hqk", a, b) * (softmax_scale or a.shape[-1] ** -0.5)
            hidden = torch.ones(len(a), len(b), dtype=torch.bool).triu(len(b) - len(a) + 1)
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            out.append(torch.einsum("hqk,khd->qhd", weights, v[cu_k[i] : cu_k[i + 1]]))
        return torch.cat(out)


class NoTransfer:
    """Weights go nowhere."""

    def init_weight_transfer(self): ...
    def pause(self): ...
    def send_weights(self, iterator):
        for _ in iterator:
            pass

    def resume(self): ...
    def destroy(self): ...


class Watched(AsyncGRPOTrainer):
    """Keeps what came to the loss, and what came of it."""

    def compute_loss(self, model, inputs, **more):
        loss = super().compute_loss(model, inputs, **more)
        self.seen = [*getattr(self, "seen", []), ({k: v.clone() for k, v in inputs.items()}, float(loss.detach()))]
        return loss


def group(path, number, version=1):
    """A rollout of two rows (A .5, w .5), one of one row (A -1), and one never scored."""
    context = [10 + number, 11, 12]
    ids = [[*context, 13, 20, 14], [*context, 15], [*context, 16, 17], [*context, 18]]
    masks = [[0, 0, 0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0, 1]]
    about = [
        dict(rollout_id=f"a{number}", reward=1.0, advantage=0.5, weight=0.5),
        dict(rollout_id=f"a{number}", reward=1.0, advantage=0.5, weight=0.5),
        dict(rollout_id=f"b{number}", reward=0.0, advantage=-1.0),
        dict(rollout_id=f"c{number}"),
    ]
    return delivered(
        [
            row(i, m, [b if t else None for b, t in zip(behaviour(path, i, 0.1), m, strict=True)],
                group_id=f"g{number}", policy_version=version, **a)
            for i, m, a in zip(ids, masks, about, strict=True)
        ]
    )


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory):
    """Four optimizer steps of TRL's asynchronous trainer, each on one leased group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_flash_attn", lambda: FlashOnCPU)
        patch.setattr(torch.cuda, "get_device_name", lambda device: "none")
        yield train(model, tmp_path_factory.mktemp("trained"))


def train(model, tmp_path):
    client = Leases(*(group(model, n) for n in range(6)))
    worker = RolloutWorker(client, "trl", temperature=1.0, version_offset=1, wait=0.01, max_groups=1, max_staleness=5)
    args = AsyncGRPOConfig(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=3, gradient_accumulation_steps=1,
        token_budget=0, learning_rate=1e-3, report_to=[], use_cpu=True, bf16=False, save_strategy="no",
        max_staleness=10, weight_sync_steps=2, gradient_checkpointing=False, heartbeat_stale_after_s=60,
    )
    trainer = Watched(
        model=model, args=args, train_dataset=Dataset.from_dict({"prompt": ["w3"] * 4}),
        reward_funcs=lambda **_: [0.0], rollout_worker=worker, weight_transfer=NoTransfer(),
        callbacks=[worker.callback()],
    )
    trainer.train()
    return SimpleNamespace(trainer=trainer, client=client, worker=worker)


def test_the_loss_is_taken_with_our_masks_logprobs_and_advantages(trained, model):
    inputs, loss = trained.trainer.seen[0]
    ids, position = inputs["input_ids"][0], inputs["token_index"][0]
    keep = position >= 0
    targets = inputs["shift_labels"][0][position[keep]].tolist()
    assert sorted(targets) == sorted([13, 14, 15, 16, 17]), "tools, context and the unscored row are not trained"
    assert 18 not in ids.tolist()
    advantages = dict(zip(targets, inputs["advantages"][0][keep].tolist(), strict=True))
    assert advantages == {13: 0.25, 14: 0.25, 15: 0.25, 16: -1.0, 17: -1.0}
    # Behaviour log-probs were the model's plus 0.1: every ratio is exp(-0.1), inside the clip range.
    ratio = math.exp(-0.1)
    assert loss == pytest.approx(-ratio * (3 * 0.25 - 2 * 1.0) / 5, abs=1e-5)


def test_batches_are_acknowledged_two_steps_after_their_last_row_was_taken(trained):
    states = trained.client.states
    assert states[:2] == ["acknowledged", "acknowledged"] and "acknowledged" not in states[4:]
    assert set(states[2:]) <= {"acknowledged", "returned", "open"}
    leased = len(trained.client.batches) - len(trained.client.left)
    assert "open" not in states[:leased], "what was not acknowledged is returned when the trainer stops"


def test_leases_follow_the_policy_version(trained):
    asked = [a["policy_version"] for a in trained.client.asked]
    assert asked[0] == 2, "TRL's first weight sync makes version 1; the offset is 1"
    assert asked == sorted(asked)


def one(**more):
    return delivered([row([1, 2, 3], [0, 1, 1], reward=1.0, advantage=1.0, **more)])


def test_samples_have_trls_dtypes_and_distinct_groups():
    worker = RolloutWorker(Leases(), "trl", version_offset=5)
    client = Leases(one(policy_version=7), one(policy_version=8))
    a, b = (worker.samples(batch)[0] for batch in client.batches)
    assert (a.input_ids.dtype, a.completion_mask.dtype, a.old_log_probs.dtype) == (np.int64, np.int64, np.float32)
    assert (a.model_version, b.model_version) == (2, 3) and a.group_id != b.group_id
    assert a.metrics == {"reward": 1.0}


def test_a_row_of_unknown_version_is_refused_or_taken_as_current():
    batch = Leases(one()).batches[0]
    with pytest.raises(DataError, match="row tr_0 of rollout r-0: its policy version is not known"):
        RolloutWorker(Leases(), "trl").samples(batch)
    worker = RolloutWorker(Leases(), "trl", unknown_version="current")
    worker.update_model_version(4)
    assert worker.samples(batch)[0].model_version == 4


def test_a_fault_of_leasing_reaches_the_trainer():
    failed = threading.Event()

    class Broken(Leases):
        def lease(self, consumer, **fields):
            try:
                raise DataError("no such server")
            finally:
                failed.set()

    worker = RolloutWorker(Broken(), "trl")
    worker.check_health(60)
    worker.start()
    failed.wait(30)
    worker._thread.join(30)
    with pytest.raises(RuntimeError, match="no such server"):
        worker.check_health(60)
    worker.stop()


def test_a_batch_of_a_rollout_that_never_trains_counts_it():
    worker = RolloutWorker(Leases(), "trl")
    batch = Leases(delivered([row([1, 2], [0, 1], policy_version=1)])).batches[0]
    assert worker.samples(batch) == []
    assert worker.metrics_queue.get_nowait() == {"icecore/untrained_rows_total": 1.0}


def rewarded(model, rewards, n):
    ids = [[10 + n, 11, 13 + i, 14] for i in range(len(rewards))]
    return [
        row(x, [0, 0, 1, 1], reward=r, group_id=f"g{n}", rollout_id=f"g{n}-{i}")
        for i, (x, r) in enumerate(zip(ids, rewards, strict=True))
    ]


def grpo(model, tmp_path, client, steps=2):
    rollouts = RolloutFunction(client, "trl")
    args = GRPOConfig(
        output_dir=str(tmp_path), max_steps=steps, per_device_train_batch_size=4, num_generations=2, report_to=[],
        use_cpu=True, bf16=False, save_strategy="no", learning_rate=1e-3, loss_type="dapo", beta=0.0,
        gradient_checkpointing=False, max_completion_length=8, logging_steps=1,
    )
    return GRPOTrainer(
        model=model, args=args, train_dataset=Dataset.from_dict({"prompt": ["w3"] * 8}),
        reward_funcs=rollouts.reward, rollout_func=rollouts,
    )


def test_the_plain_trainer_takes_rewards_and_counts_none_as_none(model, tmp_path):
    """TRL#5902: a rollout without a reward is no rollout with reward 0."""
    tables = [delivered(rewarded(model, [-1.0, None], 0) + rewarded(model, [0.0, 1.0], 1), estimator="none")] * 2
    client = Leases(*tables)
    trainer = grpo(model, tmp_path, client)
    seen = []
    score = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: seen.append(score(inputs)) or seen[-1]
    trainer.train()
    order = np.argsort(seen[0]["prompt_ids"][:, 0].numpy(), kind="stable")
    advantages = seen[0]["advantages"].numpy()[order]
    assert advantages == pytest.approx([0.0, 0.0, -0.7071, 0.7071], abs=1e-3)
    assert client.states == ["acknowledged", "open"], "the second request proves that the first was used"
    assert client.asked[0]["groups"] == 2 and client.asked[0]["estimator"] == "none"


def test_the_plain_trainer_does_not_evaluate_on_training_data():
    client = Leases(one())
    trainer = SimpleNamespace(accelerator=SimpleNamespace(num_processes=1), num_generations=2, model=SimpleNamespace(training=False))
    with pytest.raises(DataError, match="leave evaluation"):
        RolloutFunction(client, "trl")(["w3"] * 2, trainer)
    assert not client.asked


def test_the_plain_trainer_cannot_have_rollouts_of_several_rows(model, tmp_path):
    rows = rewarded(model, [1.0, 0.0], 0)
    split = delivered([*rows, {**rows[0], "rollout_id": "g0-0"}], estimator="none")
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(num_processes=1), num_generations=2, args=SimpleNamespace(temperature=1.0)
    )
    with pytest.raises(DataError, match=r"group g0 has rollouts of \[2, 1\] rows"):
        RolloutFunction(Leases(split), "trl")(["w3"] * 2, trainer)
    trainer.accelerator.num_processes = 2
    with pytest.raises(DataError, match="AsyncGRPOTrainer"):
        RolloutFunction(Leases(split), "trl")(["w3"] * 2, trainer)
