"""miles, by shape. Sample and its validate: radixark/miles, miles/utils/types.py at
002ce70c0f33c97255bec842e8b95d1dfb31d3f3, which has no rollout_id yet. That, and the
normalisation per rollout (miles#2369, miles#2498), are after a newer copy of miles'
conversion of which neither repository nor commit is known.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from .slime import RolloutFnTrainOutput as RolloutFnTrainOutput
from .slime import Sample as _Sample


@dataclass
class Sample(_Sample):
    def validate(self) -> None:
        assert 0 <= self.response_length <= len(self.tokens)
        assert self.loss_mask is None or len(self.loss_mask) == self.response_length
        assert self.rollout_log_probs is None or len(self.rollout_log_probs) == self.response_length


def normalised(samples: list[Any]) -> list[float]:
    """Rewards as miles normalises them: one per rollout, by group_index, sample deviation."""
    scores: dict[Any, float] = {}
    groups: dict[Any, list[Any]] = {}
    for s in samples:
        if scores.setdefault(s.rollout_id, s.reward) != s.reward:
            raise ValueError(f"all samples in rollout {s.rollout_id!r} must share one reward")
        groups.setdefault(s.group_index, [])
        if s.rollout_id not in groups[s.group_index]:
            groups[s.group_index].append(s.rollout_id)
    out: dict[Any, float] = {}
    for ids in groups.values():
        mean = statistics.fmean(scores[i] for i in ids)
        deviation = statistics.stdev([scores[i] for i in ids]) if len(ids) > 1 else 0.0
        out |= {i: (scores[i] - mean) / (deviation + 1e-6 if deviation else 1.0) for i in ids}
    return [out[s.rollout_id] for s in samples]
