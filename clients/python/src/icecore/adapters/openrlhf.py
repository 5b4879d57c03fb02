"""OpenRLHF: an agent executor that answers a prompt with a rollout of a leased group.

    # agent.py, given as --train.agent_func_path
    import icecore
    from icecore.adapters.openrlhf import executor
    AgentExecutor = executor(lambda: icecore.Client("http://…"), "openrlhf", n_samples_per_prompt=8)

    --algo.advantage.estimator dr_grpo     # subtracts a group mean, which is 0 already

OpenRLHF asks n_samples_per_prompt times per prompt and takes one row each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from icecore.errors import DataError

from .feed import Feed
from .rows import Comparable, Missing, Ready, groups, ready, reward_of


def action_ranges(one: Ready) -> list[tuple[int, int]]:
    """The half-open ranges of trained tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], one.mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def to_response(one: Ready, prompt: Any = None, label: Any = None) -> dict[str, Any]:
    """What an executor returns: tokens, ranges and log-probs (T, 0.0 off the mask), the score as reward."""
    return {
        "prompt": prompt,
        "label": label,
        "images": None,
        "mm_train_inputs": None,
        "reward": one.score,
        "scores": reward_of(one),
        "observation_tokens": one.tokens.tolist(),
        "action_ranges": action_ranges(one),
        "rollout_log_probs": one.logprobs.tolist(),
        "truncated": bool(one.row.truncated),
        "extra_logs": {},
    }


class Groups:
    """Hands out the rollouts of leased groups, a group to a prompt.

    n: samples per prompt; a group must hold n scored rollouts of one row each. lag:
    groups after which an earlier one is taken as used; give it the groups of
    async_queue_size + 2 batches.
    """

    def __init__(
        self,
        client: Any,
        consumer: str,
        n: int,
        lag: int,
        *,
        missing: Missing = "raise",
        comparable: Comparable = "require",
        temperature: float | None = None,
        **lease: Any,
    ) -> None:
        self.n = n
        self._rules: dict[str, Any] = {"missing": missing, "comparable": comparable, "temperature": temperature}
        self._feed = Feed(client, consumer, lag=lag, **lease)
        self._left: dict[Any, list[Ready]] = {}
        self._lock = asyncio.Lock()

    async def next(self, prompt: Any) -> Ready:
        """The next rollout for this prompt."""
        async with self._lock:
            if not self._left.get(prompt):
                self._left[prompt] = await asyncio.to_thread(self._group)
            return self._left[prompt].pop(0)

    def _group(self) -> list[Ready]:
        batch = self._feed.next(groups=1)
        with self._feed.using(batch):
            (group,) = groups(ready(batch, **self._rules))
            if len(group) != self.n or any(len(rollout) != 1 or not rollout[0].scored for rollout in group):
                counts = [str(len(r)) if r[0].scored else "unscored" for r in group]
                first = group[0][0].row
                raise DataError(
                    f"answer for OpenRLHF: group {first.group_id or first.rollout_id} has rollouts of {', '.join(counts)} "
                    f"rows; OpenRLHF needs {self.n} scored rollouts of one row, for it takes means by position"
                )
            return [one for rollout in group for one in rollout]


def executor(
    client: Callable[[], Any], consumer: str, n_samples_per_prompt: int, *, lag: int = 1024, **options: Any
) -> Any:
    """A class for OpenRLHF's `AgentExecutor`. client makes an icecore.Client in OpenRLHF's process.

    options: missing, comparable, temperature, and fields of every lease (see Groups).
    """
    from openrlhf.utils.agent import AgentExecutorBase

    class AgentExecutor(AgentExecutorBase):  # type: ignore[misc]
        def __init__(self, *_: Any, **__: Any) -> None:
            self.groups = Groups(client(), consumer, n_samples_per_prompt, lag, **options)

        async def execute(self, prompt: Any, label: Any, *_: Any, **__: Any) -> dict[str, Any]:
            return to_response(await self.groups.next(prompt), prompt, label)

    return AgentExecutor
