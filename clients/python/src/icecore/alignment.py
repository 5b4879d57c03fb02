"""The three ways to lay values along a row's tokens.

    T  token-aligned, length L: entry t belongs to token t
    R  response-aligned, length L - p: T from the first trained position p on
    N  next-token, length L - 1: entry i belongs to token i + 1

icecore delivers T. A model's logits at position i score token i + 1, so N is
the axis of a loss; many trainers take R. For the tokens [10, 11, 12, 13, 20, 14]
with p = 2 and log-probs T = [-, -, -.1, -.2, -, -.3]:

    R = [-.1, -.2, -, -.3]      N = [-, -.1, -.2, -, -.3]

The functions that leave something out give views; those that put something back
make a new array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DataError

Array = npt.NDArray[Any]


def to_response(values: Array, prompt_length: int) -> Array:
    """T [L] to R [L - p], a view. Raises DataError unless 1 <= p <= L."""
    if not 1 <= prompt_length <= len(values):
        raise DataError(
            f"align to the response: the prompt has {prompt_length} of {len(values)} tokens, and at least one is "
            "needed, because the first response token is scored by the logits before it"
        )
    return values[prompt_length:]


def from_response(values: Array, prompt_length: int, fill: Any) -> Array:
    """R [L - p] to T [L]; the p positions of the prompt hold fill."""
    if prompt_length < 1:
        raise DataError(f"align from the response: the prompt has {prompt_length} tokens, and at least one is needed")
    return np.concatenate([np.full(prompt_length, fill, values.dtype), values])


def to_next(values: Array) -> Array:
    """T [L] to N [L - 1], a view: what belongs to token 0 is left out."""
    if len(values) == 0:
        raise DataError("align to the next token: the row is empty")
    return values[1:]


def from_next(values: Array, fill: Any) -> Array:
    """N [L - 1] to T [L]; entry 0 holds fill."""
    return np.concatenate([np.full(1, fill, values.dtype), values])
