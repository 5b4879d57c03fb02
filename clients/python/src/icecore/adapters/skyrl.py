"""SkyRL: a generator that gives leased groups to its trainer.

    generator.step_wise_trajectories=true
    trainer.algorithm.advantage_estimator=icecore

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return IcecoreGenerator(icecore.Client(url), "skyrl", temperature=cfg.generator.sampling_params.temperature)

With other estimators SkyRL takes rewards (score="reward") and its own means.
"""

from __future__ import annotations

import asyncio
from typing import Any

from icecore.errors import DataError

from .feed import Feed
from .rows import Comparable, Missing, Ready, Score, groups, ready, reward_of

ESTIMATOR = "icecore"


def passed_through(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """The advantage estimator `icecore`: each row's score at every position of its mask."""
    scores = token_level_rewards.sum(dim=-1, keepdim=True) * response_mask
    return scores, scores


def register() -> None:
    """Makes trainer.algorithm.advantage_estimator=icecore known to SkyRL."""
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

    if ESTIMATOR not in AdvantageEstimatorRegistry.list_available():
        AdvantageEstimatorRegistry.register(ESTIMATOR, passed_through)


class IcecoreGenerator:
    """SkyRL's GeneratorInterface, fed by leases. validation: a generator for the "eval" phase.

    A batch is acknowledged when SkyRL asks for the next, which it does after its
    step (the synchronous trainer, as train() of 0.3).
    """

    def __init__(
        self,
        client: Any,
        consumer: str,
        *,
        score: Score = "advantage",
        missing: Missing = "raise",
        comparable: Comparable = "require",
        temperature: float | None = None,
        validation: Any = None,
        wait: float = 30.0,
        **lease: Any,
    ) -> None:
        if score == "advantage":
            register()
        self._rules: dict[str, Any] = {
            "score": score,
            "missing": missing,
            "comparable": comparable,
            "temperature": temperature,
        }
        self._validation = validation
        self._feed = Feed(client, consumer, wait=wait, **lease)

    async def generate(self, input_batch: Any) -> Any:
        """GeneratorOutput of one leased group per distinct instance of the input, rows contiguous."""
        about = input_batch.get("batch_metadata")
        if about is not None and about.training_phase == "eval":
            if self._validation is None:
                raise DataError("generate for SkyRL: evaluation needs validation=, a generator of SkyRL's own")
            return await self._validation.generate(input_batch)
        uids = list(dict.fromkeys(t.instance_id for t in input_batch["trajectory_ids"]))
        asked: dict[str, Any] = {"groups": len(uids)}
        if about is not None and "max_staleness" in self._feed.lease:
            asked["policy_version"] = about.global_step
        batch = await asyncio.to_thread(self._feed.next, **asked)
        with self._feed.using(batch):
            return generator_output(ready(batch, **self._rules), uids, self._rules["score"])


def generator_output(prepared: list[Ready], uids: list[str], score: Score = "advantage") -> dict[str, Any]:
    """Lists per row: prompts [p], responses, masks and log-probs R, one score, whose it is, whether it is the last.

    SkyRL puts the score on the response's last token (which is trained), and gives
    every row of a rollout the last row's advantage.
    """
    from skyrl.train.generators.base import TrajectoryID

    grouped = groups(prepared)
    if len(grouped) != len(uids):
        raise DataError(f"generate for SkyRL: {len(grouped)} groups for {len(uids)} prompts; they must be as many")
    rows: list[tuple[Ready, Any, bool]] = []
    for uid, group in zip(uids, grouped, strict=True):
        for number, rollout in enumerate(group):
            if len({one.score for one in rollout}) > 1:
                raise DataError(
                    f"generate for SkyRL: the rows of rollout {rollout[0].row.rollout_id} have several weights, and SkyRL "
                    'gives all the last row\'s; lease with row_weight "none" or "session_mean"'
                )
            if score == "reward" and not rollout[0].scored:
                raise DataError(
                    f"generate for SkyRL: rollout {rollout[0].row.rollout_id} has no reward, and SkyRL would take it for 0"
                )
            rows += [(one, TrajectoryID(uid, number), one is rollout[-1]) for one in rollout]
    rewards = [r for r in (reward_of(one) for one, _, last in rows if last) if r == r]
    return {
        "prompt_token_ids": [one.tokens[: one.p].tolist() for one, _, _ in rows],
        "response_ids": [one.tokens[one.p :].tolist() for one, _, _ in rows],
        "rewards": [one.score for one, _, _ in rows],
        "loss_masks": [one.mask[one.p :].astype(int).tolist() for one, _, _ in rows],
        "rollout_logprobs": [one.logprobs[one.p :].tolist() for one, _, _ in rows],
        "stop_reasons": ["length" if one.row.truncated else "stop" for one, _, _ in rows],
        "trajectory_ids": [trajectory for _, trajectory, _ in rows],
        "is_last_step": [last for _, _, last in rows],
        "rollout_metrics": {"icecore/reward": sum(rewards) / len(rewards)} if rewards else {},
    }
