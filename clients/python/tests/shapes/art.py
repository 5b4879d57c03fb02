"""ART, openpipe-art 0.5.18: the fields of art/preprocessing/tokenize.py's TokenizedResult
that its packing reads, and the weight of a token in its loss (art/preprocessing/pack.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class TokenizedResult:
    advantage: float
    chat: str
    token_ids: list[int]
    input_pos: list[int]
    assistant_mask: list[int]
    logprobs: list[float]
    pixel_values: Any
    image_grid_thw: Any
    trajectory: Any
    choice_offsets: list[int]
    extra_logprobs: dict[str, list[float]]
    _tokenizer: Any
    weight: float = 0.0
    prompt_id: int = 0
    prompt_length: int = 0


def shares(results: list[TokenizedResult]) -> list[float]:
    """Each row's part of the loss's weight: trained tokens times weight, over the sum of that."""
    parts = [sum(r.assistant_mask) * r.weight for r in results]
    return [p / sum(parts) for p in parts]
