"""Rollouts: sends harnesses out, and says in icecore what they were and what came of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import harness
from capture import Capture
from world import HELD_OUT, TRAIN, Task, World

AT_ONCE = 8  # harnesses
SAMPLES = 8  # rollouts of a group
PATIENCE = 120.0  # seconds for icecore to take what was written


@dataclass(frozen=True)
class Rollout:
    """One run of the harness that is to be made."""

    id: str
    task: Task
    attributes: dict[str, Any]


class Rollouts:
    def __init__(self, capture: Capture, writer: Any, seed: int) -> None:
        self._capture = capture
        self._writer = writer
        self._seed = seed

    def groups(self, version: int, count: int, name: str = "g") -> None:
        """Samples `count` groups of tasks that are trained on, and rewards them."""
        self._run(self._training(version, count, name), self._reward)

    def late_group(self, version: int) -> Callable[[], None]:
        """Samples one group whose verifier takes its time: the rewards are given
        when the returned function is called."""
        verdicts: list[tuple[Rollout, float]] = []

        def give() -> None:
            for rollout, reward in verdicts:
                self._reward(rollout, reward)
            self._writer.flush(PATIENCE)

        self._run(self._training(version, 1, "late"), lambda rollout, reward: verdicts.append((rollout, reward)))
        return give

    def held_out(self, version: int) -> list[str]:
        """Walks every held-out task once; returns the rollouts."""
        told = {"split": "eval", "policy_version": version}
        rollouts = [Rollout(f"eval{version:03d}-{task.id}", task, told) for task in HELD_OUT]
        self._run(rollouts, self._reward)
        return [rollout.id for rollout in rollouts]

    def _training(self, version: int, count: int, name: str) -> list[Rollout]:
        rng = random.Random(f"{self._seed}/tasks/{version}/{name}")
        out = []
        for number, task in enumerate(rng.sample(TRAIN, count)):
            group = f"v{version:03d}-{name}{number:02d}"
            for i in range(SAMPLES):
                told = {"split": "train", "group_id": group, "group_size": SAMPLES, "sample_index": i}
                out.append(Rollout(f"{group}-{i}", task, told))
        return out

    def _run(self, rollouts: Iterable[Rollout], verified: Callable[[Rollout, float], None]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda r: self._one(r, verified), rollouts):
                pass
        self._writer.flush(PATIENCE)  # all of it is durable now

    def _one(self, rollout: Rollout, verified: Callable[[Rollout, float], None]) -> None:
        self._writer.rollout(rollout.id, task_id=rollout.task.id, harness="walker", **rollout.attributes)
        seed = f"{self._seed}/{rollout.id}"
        world = World(rollout.task, seed)
        try:
            harness.walk(self._capture.base_url(rollout.id), world, seed)
        except harness.Died as e:
            self._writer.finish(rollout.id, "error", error=str(e))  # and no reward: nobody can judge it
        else:
            self._writer.finish(rollout.id, "succeeded")
            verified(rollout, world.reward)

    def _reward(self, rollout: Rollout, value: float) -> None:
        self._writer.reward(reward_id=f"{rollout.id}/reward", rollout_id=rollout.id, value=value, source="world")
