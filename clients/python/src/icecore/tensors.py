"""Rows, packs and blocks as torch tensors. Imports torch.

Arrow memory is read-only and torch has no such tensors, so what comes is a copy
that may be written to, unless copy=False asks for views of the Arrow memory where
there can be any: of ids, mask and complete log-probs that lie in one chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from .errors import DataError
from .packing import Pack
from .padding import Padded
from .rows import Array, Row

_INT32 = np.iinfo(np.int32).max


def to_tensors(
    source: Sequence[Row] | Pack | Padded | Any,
    device: torch.device | str | None = None,
    *,
    copy: bool = True,
    int64: bool = False,
    pin: bool = False,
) -> dict[str, torch.Tensor]:
    """Tensors by name.

    Of a Pack or Padded: its arrays. Of rows (or a batch: all its rows), end to end
    and token-aligned, n the sum of their lengths:

        tokens      int32 [n], int64 with int64=True (gather and losses want that)
        mask        bool [n], all False in rows without a reward (Row.trained_mask)
        logprobs    float32 [n], NaN: not sampled, or not known
        cu_seqlens  int32 [rows + 1], row i is [cu_seqlens[i], cu_seqlens[i + 1])
        advantages  float32 [rows], times weight; 0 without a reward, NaN with estimator "none"

    device: where they go; ids are cast there, after the copy. pin: in page-locked
    memory, for copies that do not block (left out without CUDA).
    copy=False: views where possible. WRITING TO A VIEW CHANGES THE BATCH.
    """
    arrays = _arrays(source)
    pin = pin and torch.cuda.is_available()
    tensors = {name: _tensor(parts, copy or pin, pin) for name, parts in arrays.items()}
    if device is not None:
        tensors = {name: t.to(device, non_blocking=pin) for name, t in tensors.items()}
    if int64:
        tensors["tokens"] = tensors["tokens"].long()
    return tensors


def row_advantages(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The advantages of to_tensors(rows) laid along the tokens, 0 where mask is False; float32 [n]."""
    lengths = tensors["cu_seqlens"].diff().long()
    along = torch.repeat_interleave(tensors["advantages"], lengths)
    return torch.where(tensors["mask"], along, 0.0)


def _arrays(source: Any) -> dict[str, list[Array]]:
    """Each tensor as the arrays that it is made of, end to end."""
    if isinstance(source, (Pack, Padded)):
        return {f.name: [getattr(source, f.name)] for f in fields(source)}
    rows: Sequence[Row] = source if isinstance(source, Sequence) else source.rows()
    starts = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    if starts[-1] > _INT32:
        raise DataError(f"to tensors: {starts[-1]} tokens are more than int32 counts; take fewer rows at once")
    scaled = [np.nan if row.scaled_advantage is None else row.scaled_advantage for row in rows]
    unscored = [row.advantage is None and row.estimator != "none" for row in rows]
    return {
        "tokens": joined([row.tokens for row in rows], np.int32),
        "mask": joined([row.trained_mask for row in rows], np.bool_),
        "logprobs": joined([row.logprobs for row in rows], np.float32),
        "cu_seqlens": [starts.astype(np.int32)],
        "advantages": [np.where(unscored, 0, scaled).astype(np.float32)],
    }


def joined(arrays: Sequence[Array], dtype: Any) -> list[Array]:
    """The same end to end, arrays that follow each other in memory as one view."""
    runs: list[tuple[Array, int]] = []  # the first array of a run, and the bytes of all
    end, owner = 0, None
    for array in arrays:
        if not len(array):
            continue
        address, its_owner = _address(array), _owner(array)
        if address == end and its_owner is owner:
            runs[-1] = runs[-1][0], runs[-1][1] + array.nbytes
        else:
            runs.append((array, array.nbytes))
            owner = its_owner
        end = address + array.nbytes
    if not runs:
        return [np.zeros(0, dtype)]
    return [np.lib.stride_tricks.as_strided(start, (size // start.itemsize,), writeable=False) for start, size in runs]


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _owner(array: Array) -> Any:
    """The object whose memory an array looks at."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


class _Writable:
    """An array's memory, said to be writable: torch.from_numpy warns about the others."""

    def __init__(self, array: Array) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _tensor(parts: list[Array], copy: bool, pin: bool) -> torch.Tensor:
    if len(parts) == 1 and not copy:
        return torch.from_numpy(np.asarray(_Writable(parts[0])))
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    dtype = torch.from_numpy(np.empty(0, parts[0].dtype)).dtype
    out = torch.empty(shape, dtype=dtype, pin_memory=pin)
    np.concatenate(parts, out=out.numpy())
    return out
