"""AReaL: a workflow whose episode is one leased group.

    trainer.train(workflow=IcecoreWorkflow(icecore.Client(url), "areal", max_head_offpolicyness=2), ...)
    # actor.reward_norm: null, actor.adv_norm: null, reward_scaling 1, reward_bias 0, discount = gae_lambda = 1

Rewards are our advantages, so all of AReaL's own normalisation is off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from icecore.errors import DataError

from .feed import Feed
from .rows import Comparable, Missing, Ready, ready, trained


class IcecoreWorkflow:
    """AReaL's RolloutWorkflow.

    max_head_offpolicyness: AReaL's setting; a group is acknowledged when the engine's
    version is more than that beyond the version at which the group was given, for by
    then AReaL has trained on it or rejected it. unknown_version: what a trained token
    without a policy version has: "raise", or "current", the engine's.
    """

    def __init__(
        self,
        client: Any,
        consumer: str,
        *,
        max_head_offpolicyness: int,
        missing: Missing = "raise",
        comparable: Comparable = "require",
        temperature: float | None = None,
        unknown_version: Literal["raise", "current"] = "raise",
        wait: float = 30.0,
        **lease: Any,
    ) -> None:
        self._rules: dict[str, Any] = {"missing": missing, "comparable": comparable, "temperature": temperature}
        self._ahead, self._unknown = max_head_offpolicyness, unknown_version
        self._feed = Feed(client, consumer, wait=wait, lag=1 << 31, **lease)
        self._given: dict[str, int] = {}

    async def arun_episode(self, engine: Any, data: Any) -> dict[str, Any] | None:
        """One group as tensors [rows, L]; None when none of its rows trains anything. data is not looked at."""
        now = int(engine.get_version())
        await asyncio.to_thread(self._settle, now)
        batch = await asyncio.to_thread(self._feed.next, groups=1)
        with self._feed.using(batch):
            rows = trained(ready(batch, **self._rules))
            made = tensors(rows, now if self._unknown == "current" else None) if rows else None
        self._given[batch.lease_id] = now
        return made

    def _settle(self, now: int) -> None:
        done = {lease for lease, version in list(self._given.items()) if now > version + self._ahead}
        self._feed.settle(lambda batch: batch.lease_id in done)
        for lease in done:
            self._given.pop(lease, None)


def tensors(rows: Sequence[Ready], unknown_version: int | None = None) -> dict[str, Any]:
    """AReaL's batch of rows, right-padded to the longest: T-aligned [rows, L], rewards [rows].

    input_ids, loss_mask, versions int32; logprobs float32 (0.0 off the mask); version
    -1 off the mask; attention_mask bool. Every row ends with a trained token, where
    AReaL puts the reward.
    """
    import torch

    width = max(len(one) for one in rows)

    def padded(values: Sequence[Any], fill: Any, kind: Any) -> Any:
        out = np.full((len(rows), width), fill, kind)
        for at, value in enumerate(values):
            out[at, : len(value)] = value
        return torch.from_numpy(out)

    return {
        "input_ids": padded([one.tokens for one in rows], 0, np.int32),
        "loss_mask": padded([one.mask for one in rows], 0, np.int32),
        "logprobs": padded([one.logprobs for one in rows], 0.0, np.float32),
        "versions": padded([_versions(one, unknown_version) for one in rows], -1, np.int32),
        "attention_mask": padded([np.ones(len(one), np.bool_) for one in rows], False, np.bool_),
        "rewards": torch.tensor([one.score for one in rows], dtype=torch.float32),
    }


def _versions(one: Ready, unknown: int | None) -> Any:
    versions = np.where(one.mask, one.row.versions(-1)[: len(one)], -1)
    gone = one.mask & (versions < 0)
    if gone.any():
        if unknown is None:
            raise DataError(
                f"prepare row {one.row.id} of rollout {one.row.rollout_id}: the policy version of trained tokens is not "
                'known; record policy_version, or say unknown_version="current"'
            )
        versions[gone] = unknown
    return versions
