"""ART: TokenizedResults for its packing, in place of tokenised trajectories.

    packed = packed_tensors_from_tokenized_results(tokenized_results(batch), seq_len, ...)

Lease with row_weight "none": ART weights a row by 1/(trained tokens of its rollout).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from icecore.rows import Row

from .rows import Batch, Comparable, Missing, Ready, ready, rollouts, trained


def tokenized_results(
    batch: Batch | Iterable[Row],
    *,
    missing: Missing = "raise",
    comparable: Comparable = "require",
    temperature: float | None = None,
) -> list[Any]:
    """art.preprocessing.tokenize.TokenizedResult per row that trains something: T-aligned, log-probs NaN on context.

    Rows with the same prompt share a prompt_id, so that ART packs the prompt once.
    """
    prepared = trained(ready(batch, missing=missing, comparable=comparable, temperature=temperature))
    made = []
    for rollout in rollouts(prepared):
        weight = 1 / sum(one.trained for one in rollout)
        made += [_result(one, weight) for one in rollout]
    return made


def _result(one: Ready, weight: float) -> Any:
    from art.preprocessing.tokenize import TokenizedResult

    prompt = one.tokens[: one.p].tobytes()
    return TokenizedResult(
        advantage=one.score,
        chat="",
        token_ids=one.tokens.tolist(),
        input_pos=list(range(len(one))),
        assistant_mask=one.mask.astype(int).tolist(),
        logprobs=np.where(one.mask, one.logprobs, np.nan).tolist(),
        pixel_values=None,
        image_grid_thw=None,
        trajectory=None,
        choice_offsets=[],
        extra_logprobs={},
        _tokenizer=None,
        weight=weight,
        prompt_id=hash(prompt),
        prompt_length=one.p,
    )
