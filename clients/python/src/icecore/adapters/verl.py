"""verl (trainer v1): an agent loop manager that writes leased rows to TransferQueue.

    actor_rollout_ref.rollout.agent.agent_loop_manager_class=icecore.adapters.verl.IcecoreManager
    algorithm.adv_estimator=icecore
    +icecore.url=http://… +icecore.consumer=verl

verl asks for one group per prompt of its dataset and gives each a uid; the i-th
leased group takes the i-th uid. A row's key is {uid}_{rollout}_{row}, as verl's own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from icecore.errors import DataError

from .feed import Feed, client_for
from .rows import Ready, groups, identity, ready, reward_of

log = logging.getLogger("icecore.adapters")

ESTIMATOR = "icecore"

UnknownVersion = Literal["raise", "current"]


def passed_through(token_level_rewards: Any, response_mask: Any, config: Any = None, **_: Any) -> tuple[Any, Any]:
    """The advantage estimator `icecore`: each row's score on all its trained tokens, as it was delivered.

    token_level_rewards, response_mask: tensors [rows, response]. Gives advantages
    and returns, the same shape.
    """
    scores = token_level_rewards.sum(dim=-1, keepdim=True) * response_mask
    return scores, scores


def register() -> None:
    """Makes algorithm.adv_estimator=icecore known to verl in this process."""
    from verl.trainer.ppo import core_algos

    core_algos.register_adv_est(ESTIMATOR)(passed_through)


def agent_loop_output(one: Ready) -> Any:
    """verl's AgentLoopOutput of a row: prompt [p], response, mask and log-probs R, the score on the last token."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    turns = sum(1 for span in one.row.spans if span.trainable)
    return AgentLoopOutput(
        prompt_ids=one.tokens[: one.p].tolist(),
        response_ids=one.tokens[one.p :].tolist(),
        response_mask=one.mask[one.p :].astype(int).tolist(),
        response_logprobs=one.logprobs[one.p :].tolist(),
        reward_score=one.score,
        num_turns=2 * turns,
        metrics=AgentLoopMetrics(),
        extra_fields={"icecore": identity(one), "reward_extra_info": {"icecore_reward": reward_of(one)}},
    )


def records(
    prepared: Sequence[Ready], uids: Sequence[str], global_steps: int, unknown_version: UnknownVersion = "raise", version_offset: int = 0
) -> tuple[list[str], list[dict[str, Any]], list[dict[str, Any]]]:
    """Keys, fields and tags of TransferQueue, a list entry per row; groups take uids in order.

    unknown_version, version_offset: see steps_of.
    """
    import torch

    keys: list[str] = []
    fields: list[dict[str, Any]] = []
    tags: list[dict[str, Any]] = []
    grouped = groups(prepared)
    if len(grouped) != len(uids):
        raise DataError(f"write rows for verl: {len(grouped)} groups for {len(uids)} prompts; they must be as many")
    for uid, group in zip(uids, grouped, strict=True):
        if "_" in uid:
            raise DataError(f"write rows for verl: uid {uid!r} has an underscore; verl cuts its keys there")
        for number, rollout in enumerate(group):
            for place, one in enumerate(rollout):
                output = agent_loop_output(one)
                versions = steps_of(one, global_steps, unknown_version, version_offset)
                output.extra_fields |= versions
                field = output.as_dict()
                field |= {
                    "uid": uid,
                    "global_steps": global_steps,
                    "data_source": one.row.harness or "icecore",
                    "reward_model": {"ground_truth": None},
                    "loss_mask": field["response_mask"],
                    "input_ids": torch.cat([field["prompts"], field["responses"]]),
                    "position_ids": torch.arange(len(one)),
                    "multi_modal_inputs": {},
                }
                prompt, length = one.p, len(one)
                keys.append(f"{uid}_{number}_{place}")
                fields.append(field)
                tags.append(
                    {
                        "status": "success",
                        "prompt_len": prompt,
                        "response_len": length - prompt,
                        "seq_len": length,
                        "global_steps": global_steps,
                        **versions,
                    }
                )
    return keys, fields, tags


def steps_of(one: Ready, global_steps: int, unknown_version: UnknownVersion = "raise", version_offset: int = 0) -> dict[str, int]:
    """The global steps whose weights sampled a row: its policy versions, less version_offset.

    A row of unknown version raises DataError, since verl could not tell how stale it
    is; with unknown_version "current" it counts as of global_steps.
    """
    oldest, newest = one.row.policy_version_min, one.row.policy_version_max
    if oldest is None or newest is None:
        if unknown_version == "raise":
            raise DataError(
                f"write row {one.row.id} of rollout {one.row.rollout_id} for verl: its policy version is not known, so verl "
                'cannot tell how stale it is; record policy_version, or say unknown_version="current" (+icecore.unknown_version=current)'
            )
        return {"min_global_steps": global_steps, "max_global_steps": global_steps}
    return {"min_global_steps": oldest - version_offset, "max_global_steps": newest - version_offset}


class IcecoreManager:
    """In place of verl's AgentLoopManagerTQ. Validation is left to verl's own.

    Options stand under `icecore` in verl's config: url, api_key, consumer, missing,
    comparable, unknown_version, version_offset (the policy version of the traces
    that verl calls global step 0), and lease (a mapping of further fields of the
    lease; with max_staleness in it, verl's global step plus version_offset is named
    as the policy version).

    A batch is acknowledged when TransferQueue holds none of its rows any more: verl
    clears rows after their step, or drops them as stale. That is looked at whenever
    verl asks for rows, and in settle().
    """

    def __init__(self, config: Any, client: Any = None, **verl: Any) -> None:
        said = _plain(config.get("icecore") or {})
        self.config, self._verl, self._inner = config, {"config": config, **verl}, None
        rollout = config.actor_rollout_ref.rollout
        self._rules: dict[str, Any] = {
            "score": "advantage" if config.algorithm.adv_estimator == ESTIMATOR else "reward",
            "missing": said.get("missing", "raise"),
            "comparable": said.get("comparable", "require"),
            "temperature": rollout.get("temperature"),
        }
        self._unknown: UnknownVersion = said.get("unknown_version", "raise")
        if self._unknown not in ("raise", "current"):
            raise DataError(f'unknown_version is {self._unknown!r}, "raise" or "current" is needed')
        self._offset = int(said.get("version_offset", 0))
        lease: Mapping[str, Any] = said.get("lease") or {}
        client = client or client_for(said.get("url"), said.get("api_key"))
        self._feed = Feed(client, said.get("consumer", "verl"), lag=1 << 31, **dict(lease))
        self._keys: dict[str, set[str]] = {}
        register()

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> IcecoreManager:
        """What verl calls to make its manager."""
        return cls(*args, **kwargs)

    def generate_sequences(self, prompts: Any) -> None:
        """Writes one leased group per prompt (TensorDict with uid, global_steps); waits for them."""
        if "validate" in prompts and prompts["validate"]:
            self._validation().generate_sequences(prompts)
            return
        import transfer_queue as tq
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        self.settle()
        uids = [str(uid) for uid in prompts["uid"]]
        steps = _number(prompts["global_steps"])
        asked: dict[str, Any] = {"groups": len(uids)}
        if "max_staleness" in self._feed.lease:
            asked["policy_version"] = steps + self._offset
        batch = self._feed.next(**asked)
        with self._feed.using(batch):
            prepared = ready(batch, **self._rules)
            if self._rules["score"] == "reward":
                _scored(prepared)
            keys, fields, tags = records(prepared, uids, steps, self._unknown, self._offset)
        self._keys[batch.lease_id] = {*keys, *uids}
        tq.kv_batch_put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id="train")
        # As verl's own workers do: rows first, then the group is finished.
        tq.kv_batch_put(keys=uids, tags=[{"status": "finished"} for _ in uids], partition_id="train")

    def settle(self) -> int:
        """Acknowledges the batches of which TransferQueue holds nothing any more; says how many."""
        import transfer_queue as tq

        if not self._feed.out:
            return 0
        held = set((tq.kv_list(partition_id="train") or {}).get("train", {}))
        used = {lease for lease, keys in self._keys.items() if not keys & held}
        for lease in used:
            del self._keys[lease]
        return self._feed.settle(lambda batch: batch.lease_id in used)

    def _validation(self) -> Any:
        """verl's manager, made when validation first asks for generation."""
        if self._inner is None:
            from verl.trainer.ppo.v1 import AgentLoopManagerTQ

            self._inner = AgentLoopManagerTQ.create(**self._verl)
        return self._inner


def _plain(options: Any) -> dict[str, Any]:
    """Options as plain dicts and lists, which can be sent as JSON; verl's are OmegaConf's."""
    from omegaconf import OmegaConf

    plain: dict[str, Any] = OmegaConf.to_container(options, resolve=True) if OmegaConf.is_config(options) else dict(options)
    return plain


def _number(steps: Any) -> int:
    """global_steps, whether verl hands it as data for the batch or per prompt."""
    first = getattr(steps, "data", steps)
    while isinstance(first, Sequence) or getattr(first, "shape", None):
        first = first[0]
    return int(first)


def _scored(prepared: Sequence[Ready]) -> None:
    """verl's own estimators would take a missing reward for 0."""
    for one in prepared:
        if not one.scored:
            raise DataError(
                f"write rows for verl: rollout {one.row.rollout_id} has no reward, and verl would take it for 0; "
                "set algorithm.adv_estimator=icecore, or lease with require_reward"
            )
