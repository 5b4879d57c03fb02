"""NeMo-RL: a batch for its GRPO loop, in place of its rollouts.

    data = to_batched_data_dict(batch, pad_token_id)     # a BatchedDataDict
    data["advantages"] is per token: leave out the loop's own adv_estimator
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from icecore.rows import Row

from .rows import Batch, Comparable, Missing, Ready, groups, ready, reward_of


def to_batched_data_dict(
    batch: Batch | Iterable[Row],
    pad_token_id: int,
    *,
    missing: Missing = "raise",
    comparable: Comparable = "require",
    temperature: float | None = None,
    multiple_of: int = 1,
) -> Any:
    """nemo_rl.distributed.batched_data_dict.BatchedDataDict of `fields`."""
    from nemo_rl.distributed.batched_data_dict import BatchedDataDict

    prepared = ready(batch, missing=missing, comparable=comparable, temperature=temperature)
    return BatchedDataDict(fields(prepared, pad_token_id, multiple_of))


def fields(prepared: list[Ready], pad_token_id: int, multiple_of: int = 1) -> dict[str, Any]:
    """Tensors, rows right-padded: [B, S] T-aligned, where S is a multiple of multiple_of, or [B].

    input_ids int64; token_mask, generation_logprobs, advantages float32 [B, S], 0 on
    context (its loss drops the first column). input_lengths int64, sample_mask float32
    (0 for rows that train nothing), total_reward float32 (NaN: no reward) [B].
    prompt_ids_for_adv int64 [B, longest]: the group's number and then its common
    beginning, because NeMo-RL takes equal prompt tokens for one group.
    """
    import torch

    longest = max(len(one) for one in prepared)
    width = -(-longest // multiple_of) * multiple_of

    def padded(values: list[Any], fill: Any, kind: Any, to: int) -> Any:
        out = np.full((len(values), to), fill, kind)
        for at, value in enumerate(values):
            out[at, : len(value)] = value
        return torch.from_numpy(out)

    prompts = _group_prompts(prepared)
    return {
        "input_ids": padded([one.tokens for one in prepared], pad_token_id, np.int64, width),
        "input_lengths": torch.tensor([len(one) for one in prepared]),
        "token_mask": padded([one.mask for one in prepared], 0.0, np.float32, width),
        "sample_mask": torch.tensor([float(one.trained > 0) for one in prepared]),
        "generation_logprobs": padded([one.logprobs for one in prepared], 0.0, np.float32, width),
        "advantages": padded([one.scores() for one in prepared], 0.0, np.float32, width),
        "total_reward": torch.tensor([reward_of(one) for one in prepared]),
        "prompt_ids_for_adv": padded(prompts, pad_token_id, np.int64, max(len(p) for p in prompts)),
    }


def _group_prompts(prepared: list[Ready]) -> list[Any]:
    """Per row, its group's number (in front, where no padding can make two groups equal), and the
    beginning that all rows of the group share."""
    shared: dict[int, Any] = {}
    for number, group in enumerate(groups(prepared)):
        rows = [one for rollout in group for one in rollout]
        length = min(one.p for one in rows)
        first = rows[0].tokens[:length]
        for one in rows[1:]:
            differs = np.flatnonzero(first != one.tokens[: len(first)])
            first = first[: differs[0]] if len(differs) else first
        shared[rows[0].row.group_index] = np.insert(first, 0, number)
    return [shared[one.row.group_index] for one in prepared]
