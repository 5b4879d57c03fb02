"""SkyRL 0.3.0: skyrl/train/generators/base.py (TrajectoryID), what its trainer demands of
a generator's output (skyrl/train/utils/trainer_utils.py), and how it spreads advantages
over a rollout's rows (skyrl/train/trainer.py, compute_advantages_and_returns)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LISTS = ("prompt_token_ids", "response_ids", "loss_masks", "rewards", "rollout_logprobs", "stop_reasons", "trajectory_ids", "is_last_step")


@dataclass
class TrajectoryID:
    instance_id: str
    repetition_id: int


@dataclass
class BatchMetadata:
    global_step: int
    training_phase: str


def demand(output: dict[str, Any]) -> None:
    """Equal counts, equal lengths, rows of a trajectory together, the last of each marked."""
    counts = {name: len(output[name]) for name in LISTS}
    assert len(set(counts.values())) == 1, counts
    for ids, mask, logprobs in zip(output["response_ids"], output["loss_masks"], output["rollout_logprobs"], strict=True):
        assert 0 < len(ids) == len(mask) == len(logprobs)
    assert not any(isinstance(r, list) for r in output["rewards"])
    keys = [(t.instance_id, t.repetition_id) for t in output["trajectory_ids"]]
    runs = [k for i, k in enumerate(keys) if i == 0 or keys[i - 1] != k]
    assert len(runs) == len(set(runs)), "rows of a trajectory must stand together"
    ends = [i + 1 == len(keys) or keys[i + 1] != k for i, k in enumerate(keys)]
    assert output["is_last_step"] == ends


def advantages(output: dict[str, Any], estimator: Callable[..., Any], torch: Any) -> list[list[float]]:
    """Per response token: the estimator on each trajectory's last row (reward on its last token), spread over its rows."""
    width = max(map(len, output["response_ids"]))
    at_end = torch.zeros(len(output["rewards"]), width)
    at_end[:, -1] = torch.tensor(output["rewards"])
    last = torch.tensor(output["is_last_step"])
    scores, _ = estimator(token_level_rewards=at_end[last], response_mask=torch.ones(int(last.sum()), width), index=None)
    whose = torch.cat([torch.tensor([False]), last[:-1]]).int().cumsum(0)
    return [[float(s[0]) * m for m in mask] for s, mask in zip(scores[whose], output["loss_masks"], strict=True)]
