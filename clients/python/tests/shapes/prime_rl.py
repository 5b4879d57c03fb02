"""prime-rl, by shape: src/prime_rl/transport/types.py of a version with flat token
sequences, after a copy of which neither repository nor commit is known. Commits of
PrimeIntellect-ai/prime-rl that could be read (types.py at
e86de6cbbbfded18f870bf14593898143e396d80) are older, see OldSample.

msgspec structs written as arrays there, so the order of fields is what crosses the
wire; here dataclasses that give the same arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass
class TrainingSample:
    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    ref_logprobs: list[float] | None = None
    mm_kwargs: Any = None
    mm_refs: Any = None
    routed_experts: Any = None
    mm_token_type_ids: list[int] | None = None
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None
    advantages: list[float] | None = None

    __struct_fields__ = (
        "token_ids", "mask", "logprobs", "temperatures", "env_name", "ref_logprobs", "mm_kwargs", "mm_refs",
        "routed_experts", "mm_token_type_ids", "rl_weights", "ce_weights", "ref_kl_weights", "advantages",
    )  # fmt: skip


@dataclass
class OldSample:
    """Until the flat token sequence came: prompt and completion apart, one advantage."""

    prompt_ids: list[int]
    prompt_mask: list[bool]
    completion_ids: list[int]
    completion_mask: list[bool]
    completion_logprobs: list[float]
    advantage: float | None = None

    __struct_fields__ = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "completion_logprobs", "advantage")


@dataclass
class TrainingBatch:
    examples: list[TrainingSample]
    step: int
    run_idx: int | None = None


def array(struct: Any) -> list[Any]:
    """What crosses the wire: values in the order of fields."""
    return [getattr(struct, f.name) for f in fields(struct)]


def loss(samples: list[Any]) -> float:
    """A token mean at ratio 1: minus A summed over trained tokens, over their count in the whole step.

    Raises where a trained token has no advantage, as the comments of types.py say that
    the trainer does.
    """
    total, tokens = 0.0, 0
    for s in samples:
        assert len(s.token_ids) == len(s.mask) == len(s.logprobs) == len(s.temperatures)
        if s.advantages is None or len(s.advantages) != len(s.token_ids):
            if any(s.mask):
                raise ValueError("trained tokens without advantages")
            continue
        total -= sum(a for a, m in zip(s.advantages, s.mask, strict=True) if m)
        tokens += sum(s.mask)
    return total / max(tokens, 1)
