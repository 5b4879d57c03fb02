"""slime, by shape. From THUDM/slime: Sample (slime/utils/types.py at
7985bf23a5a043f51bc1411ef2bb115ee6a2e174), RolloutFnTrainOutput (slime/rollout/base_types.py
at 2bdd8de2df68ff96d9192e09dd7bace8c6897e78), asking one batch ahead (train_async.py at
03f33927629b852d30714a485cee585c1369694f).

Sample.rollout_id, the sums per rollout and the whole steps of global_batch_size rollouts
are newer than those. They are after copies of slime's files in other repositories
(one says that it shows 22cdc6e1), not after a commit of slime that was read itself.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass
class OldSample:
    """Before rollout_id."""

    group_index: int | None = None
    index: int | None = None
    prompt: str | list[dict[str, str]] = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)
    train_metadata: dict[str, Any] | None = None

    Status = Status


@dataclass
class Sample(OldSample):
    rollout_id: int | None = None


@dataclass
class RolloutFnTrainOutput:
    samples: list[list[Sample]]
    metrics: dict[str, Any] | None = None


def train_data(args: Any, output: RolloutFnTrainOutput) -> dict[str, list[Any]]:
    """The lists that slime makes of samples: scores per row, and each row's sum of its rollout's mask."""
    samples = [s for group in output.samples for s in group]
    rewards = [s.reward for s in samples]
    if args.rewards_normalization:
        n = args.n_samples_per_prompt
        even = len(rewards) == n * args.rollout_batch_size
        parts = [rewards[i : i + n] for i in range(0, len(rewards), n)] if even else [rewards]
        rewards = [(r - statistics.fmean(g)) / (statistics.stdev(g) + 1e-6) for g in parts for r in g]
    for s in samples:
        assert len(s.loss_mask) == len(s.rollout_log_probs) == s.response_length < len(s.tokens)
    sums: dict[Any, int] = {}
    for s in samples:
        sums[s.rollout_id] = sums.get(s.rollout_id, 0) + sum(s.loss_mask)
    return {
        "tokens": [s.tokens for s in samples],
        "response_lengths": [s.response_length for s in samples],
        "rewards": rewards,
        "loss_masks": [s.loss_mask for s in samples],
        "rollout_ids": [s.rollout_id for s in samples],
        "rollout_mask_sums": [sums[s.rollout_id] for s in samples],
        "rollout_log_probs": [s.rollout_log_probs for s in samples],
    }


def rollout_mean(data: dict[str, list[Any]], global_batch_size: int) -> dict[Any, float]:
    """Each rollout's share of the loss at ratio 1: A per token, mean over its tokens, then over rollouts.

    As slime steps through it: whole steps of global_batch_size rollouts, the rest is dropped.
    """
    order = list(dict.fromkeys(data["rollout_ids"]))
    kept = set(order[: len(order) // global_batch_size * global_batch_size])
    share: dict[Any, float] = dict.fromkeys(order, 0.0)
    for rollout, score, mask, total in zip(
        data["rollout_ids"], data["rewards"], data["loss_masks"], data["rollout_mask_sums"], strict=True
    ):
        if rollout in kept:
            share[rollout] += score * sum(mask) / max(total, 1) / global_batch_size
    return share
