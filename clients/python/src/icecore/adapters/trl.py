"""TRL: a rollout worker for AsyncGRPOTrainer, and a rollout function for GRPOTrainer.

    worker = RolloutWorker(icecore.Client(url), "trl", temperature=args.temperature)
    trainer = AsyncGRPOTrainer(..., rollout_worker=worker, callbacks=[worker.callback()])

The asynchronous trainer takes our advantages, masks and log-probs as they are, and
rollouts of several rows; the plain one takes rewards, and rollouts of one row.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from icecore.errors import DataError

from .feed import Feed
from .rows import Comparable, Missing, Ready, groups, ready, reward_of, trained

if TYPE_CHECKING:
    Samples = queue.Queue[Any]
else:
    Samples = queue.Queue

log = logging.getLogger("icecore.adapters")

#: The trainer pulls a micro-batch and a sample ahead, so what it has taken by the end
#: of a step is trained on by the end of the second step after it.
STEPS_AHEAD = 2


class Counted(Samples):
    """A queue that counts what was taken from it."""

    taken = 0

    def _get(self) -> Any:
        self.taken += 1
        return super()._get()


class RolloutWorker:
    """TRL's RolloutWorkerProtocol (trl.experimental.async_grpo), fed by leases.

    client: an icecore.Client. temperature: the trainer's args.temperature; rows that
    were sampled at another are refused. missing, comparable: as in
    icecore.adapters.rows.ready. version_offset: the policy version of the traces that
    TRL calls version 0; TRL counts its weight syncs. unknown_version: what a row
    without a policy version is: "raise", or "current" to take it as just sampled.
    queue_rows: rows held ready for the trainer. lease: fields of every lease, by
    default max_groups=4; max_staleness bounds staleness at the lease already.

    A batch is acknowledged by `callback()` at the end of the second optimizer step
    after the trainer took its last row. What is not acknowledged when the trainer
    stops is returned.
    """

    def __init__(
        self,
        client: Any,
        consumer: str,
        *,
        temperature: float | None = None,
        missing: Missing = "raise",
        comparable: Comparable = "require",
        version_offset: int = 0,
        unknown_version: Literal["raise", "current"] = "raise",
        queue_rows: int = 256,
        wait: float = 10.0,
        **lease: Any,
    ) -> None:
        self.rollout_buffer = Counted(maxsize=queue_rows)
        self.metrics_queue: Samples = queue.Queue(maxsize=1024)
        self.version_offset, self.unknown_version = version_offset, unknown_version
        self._rules: dict[str, Any] = {"missing": missing, "comparable": comparable, "temperature": temperature}
        # Batches are settled by rows taken, never by the number of leases.
        self._feed = Feed(client, consumer, wait=wait, lag=1 << 31, **{"max_groups": 4, **lease})
        self._ends: deque[tuple[int, Any]] = deque()
        self._taken: deque[int] = deque(maxlen=STEPS_AHEAD + 1)
        self._groups = itertools.count()
        self._put = 0
        self._version = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._alive = time.monotonic()

    def start(self) -> None:
        """Begins leasing, in a thread. TRL calls it after its first weight sync."""
        if self._thread is None:
            self._alive = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="icecore-trl", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends leasing and returns the batches that are not acknowledged."""
        self._feed.stopping()
        if self._thread is not None:
            self._thread.join()
        self._feed.stop()

    def update_model_version(self, model_version: int) -> None:
        """TRL's number of the weights that are live now."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raises when leasing has failed, or nothing was heard from it for stale_after_s."""
        if self._failed is not None:
            raise RuntimeError(f"lease for TRL: {self._failed}") from self._failed
        age = time.monotonic() - self._alive
        if age > stale_after_s:
            raise RuntimeError(f"lease for TRL: no answer for {age:.0f} s (limit {stale_after_s:.0f} s)")

    def callback(self) -> Any:
        """A transformers.TrainerCallback that acknowledges; give it to the trainer."""
        from transformers import TrainerCallback

        worker = self

        class Acknowledge(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                worker.step_ended()

        return Acknowledge()

    def step_ended(self) -> None:
        """Acknowledges the batches whose last row was taken STEPS_AHEAD steps ago."""
        self._taken.append(self.rollout_buffer.taken)
        if len(self._taken) <= STEPS_AHEAD:
            return
        with self._lock:
            used = []
            while self._ends and self._ends[0][0] <= self._taken[0]:
                used.append(self._ends.popleft()[1])
        self._feed.settle(lambda batch: any(batch is b for b in used))

    def samples(self, batch: Any) -> list[Any]:
        """RolloutSamples of a batch: T-aligned, the advantage times weight, one per row that trains."""
        prepared = ready(batch, **self._rules)
        made: list[Any] = []
        for group in groups(prepared):
            number = next(self._groups)
            for one in trained([one for rollout in group for one in rollout]):
                made.append(self._sample(one, number))
        left = len(prepared) - len(made)
        if left:
            self._metric({"icecore/untrained_rows_total": float(left)})
        return made

    def _sample(self, one: Ready, group_id: int) -> Any:
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        oldest = one.row.policy_version_min
        if oldest is None and self.unknown_version == "raise":
            raise DataError(
                f"prepare row {one.row.id} of rollout {one.row.rollout_id}: its policy version is not known, so TRL "
                'cannot tell how stale it is; record policy_version, or say unknown_version="current"'
            )
        return RolloutSample(
            prompt=[],
            completion=[],
            input_ids=one.tokens.astype(np.int64),
            completion_mask=one.mask.astype(np.int64),
            old_log_probs=np.array(one.logprobs, dtype=np.float32),
            advantage=one.score,
            model_version=self._version if oldest is None else oldest - self.version_offset,
            group_id=group_id,
            metrics={"reward": reward_of(one)},
            enqueued_at=time.time(),
        )

    def _run(self) -> None:
        try:
            while not self._feed.stopped:
                batch = self._feed.try_next(**self._versions())
                self._alive = time.monotonic()
                if batch is not None:
                    self._give(batch)
        except BaseException as err:
            self._failed = err
            log.error("lease for TRL: %s", err)

    def _versions(self) -> dict[str, Any]:
        if "max_staleness" not in self._feed.lease:
            return {}
        return {"policy_version": self._version + self.version_offset}

    def _give(self, batch: Any) -> None:
        made = self.samples(batch)
        with self._lock:
            self._put += len(made)
            self._ends.append((self._put, batch))
        for sample in made:
            while not self._feed.stopped:
                try:
                    self.rollout_buffer.put(sample, timeout=1.0)
                    break
                except queue.Full:
                    self._alive = time.monotonic()

    def _metric(self, values: dict[str, float]) -> None:
        try:
            self.metrics_queue.put_nowait(values)
        except queue.Full:
            pass


class RolloutFunction:
    """rollout_func of GRPOTrainer (one process), with the reward function that belongs to it.

        rollouts = RolloutFunction(client, "trl")
        GRPOTrainer(..., rollout_func=rollouts, reward_funcs=rollouts.reward)

    The prompts of the dataset only say how many rollouts are wanted: groups of
    num_generations scored rollouts are leased instead, each of one row. TRL computes
    advantages from the rewards; it uses log-probs of the sampler only with
    use_vllm=True. A batch is acknowledged when TRL asks for the next.
    """

    def __init__(
        self,
        client: Any,
        consumer: str,
        *,
        missing: Missing = "raise",
        comparable: Comparable = "require",
        wait: float = 30.0,
        **lease: Any,
    ) -> None:
        self._rules: dict[str, Any] = {"missing": missing, "comparable": comparable}
        self._feed = Feed(client, consumer, wait=wait, **{"estimator": "none", **lease})
        self.__name__ = "icecore_rollouts"

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """prompt_ids, completion_ids, logprobs (R), env_mask (R), icecore_reward: a list entry per prompt."""
        if trainer.accelerator.num_processes != 1:
            raise DataError("roll out for TRL: GRPOTrainer splits groups over processes; use AsyncGRPOTrainer there")
        if not getattr(getattr(trainer, "model", None), "training", True):
            raise DataError("roll out for TRL: icecore delivers training data; leave evaluation (eval_strategy) out")
        size = trainer.num_generations
        batch = self._feed.next(groups=len(prompts) // size)
        with self._feed.using(batch):
            return self._columns(batch, size, trainer.args.temperature)

    def _columns(self, batch: Any, size: int, temperature: float) -> dict[str, list[Any]]:
        made = ready(batch, score="reward", temperature=temperature, **self._rules)
        for group in groups(made):
            if len(group) != size or any(len(rollout) != 1 for rollout in group):
                first = group[0][0].row
                raise DataError(
                    f"roll out for TRL: group {first.group_id or first.rollout_id} has rollouts of "
                    f"{[len(r) for r in group]} rows, GRPOTrainer needs {size} rollouts of one row; use AsyncGRPOTrainer"
                )
        return {
            "prompt_ids": [one.tokens[: one.p].tolist() for one in made],
            "completion_ids": [one.tokens[one.p :].tolist() for one in made],
            "logprobs": [one.logprobs[one.p :].tolist() for one in made],
            "env_mask": [one.mask[one.p :].astype(int).tolist() for one in made],
            "icecore_reward": [one.score if one.scored else None for one in made],
        }

    def reward(self, icecore_reward: list[float | None], **_: Any) -> list[float | None]:
        """The delivered rewards; None where there is none, which TRL leaves out of its means."""
        return icecore_reward
