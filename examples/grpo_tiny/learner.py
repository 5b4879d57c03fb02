"""The learner: GRPO on what icecore delivers.

The update uses what came with the rows and nothing else: ids, mask, behaviour
log-probabilities, advantage and weight. A batch is one step of the policy
version: PASSES of the optimizer over its rows, then the batch is acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import icecore
import numpy as np
import numpy.typing as npt
import torch

import policy

RATE = 5e-3
PASSES = 4
CLIP_LOW, CLIP_HIGH = 0.8, 1.28
MOST_GRADIENT = 1.0


@dataclass(frozen=True)
class Step:
    """What one batch did, in numbers."""

    loss: float  # of the first pass
    clipped: float  # share of trained tokens whose ratio was held back, mean over the passes
    gap: float  # largest |l - b| over trained tokens before the first pass, nats


class Learner:
    """The policy in training. `version` counts its steps."""

    def __init__(self, model: policy.Policy, weights: Path) -> None:
        self.policy, self.version = model, 0
        self._optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        self._weights = weights
        policy.save(model, weights, 0)

    def train(self, batch: icecore.Batch) -> Step:
        """One step on a leased batch, from log-probabilities to acknowledgement.

        The order matters: the batch is acknowledged when the weights that came of
        it are on disk. A learner that dies before gets the same batch again.
        """
        rows = batch.rows()
        for row in rows:
            icecore.check(row)
        step, own = self._update(rows)
        batch.post_logprobs({row.id: logprobs for row, logprobs in zip(rows, own)}, policy_version=self.version)
        policy.save(self.policy, self._weights, self.version + 1)
        batch.ack(metrics={"loss": step.loss, "clipped": step.clipped})
        self.version += 1
        return step

    def _update(self, rows: list[icecore.Row]) -> tuple[Step, list[npt.NDArray[np.float32]]]:
        """PASSES over the rows with the clipped surrogate.

        Returns what happened, and for each row the learner's log-probabilities
        before the first pass: float32 [L], token-aligned (T).

        The loss is a mean over rows of the mean over their trained tokens. As the
        advantage comes multiplied by the weight of row_weight=rollout_mean, that
        is a mean over rollouts, however many rows a rollout has.
        """
        block = icecore.pad(rows, side="right", pad_id=policy.END)
        ids = torch.from_numpy(block.tokens).long()
        mask = torch.from_numpy(block.mask)
        behaviour = torch.from_numpy(block.logprobs)
        advantage = torch.from_numpy(block.advantages)  # times weight

        passes: list[Step] = []
        own: list[npt.NDArray[np.float32]] = []
        for _ in range(PASSES):
            learner = self.policy.token_logprobs(ids)
            apart = torch.where(mask, learner - behaviour, 0)  # before exp: 0 * inf is no number
            ratio = apart.exp()
            free, held = ratio * advantage, ratio.clamp(CLIP_LOW, CLIP_HIGH) * advantage
            surrogate = torch.where(mask, torch.minimum(free, held), 0)
            loss = -(surrogate.sum(1) / mask.sum(1)).mean()

            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), MOST_GRADIENT)
            self._optimizer.step()

            own = own or block.unpad(learner.detach().numpy())
            clipped = (mask & (held < free)).sum() / mask.sum()
            passes.append(Step(loss.item(), clipped.item(), apart.abs().max().item()))
        return replace(passes[0], clipped=sum(p.clipped for p in passes) / PASSES), own
