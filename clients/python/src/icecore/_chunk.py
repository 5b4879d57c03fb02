"""One record batch as numpy arrays and Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .errors import DataError

_LISTS = {"token_ids": pa.int32(), "loss_mask": pa.int8(), "logprobs": pa.float32()}
NAN = pa.scalar(float("nan"), pa.float32())


class Chunk:
    """One record batch, its columns flattened or turned to Python when asked for."""

    def __init__(self, batch: Any, meta: Mapping[str, str]) -> None:
        self.batch = batch
        self.meta = meta
        self.names = frozenset(batch.schema.names)
        self._columns: dict[str, Any] = {}
        self._lists: dict[str, tuple[Any, list[int]]] = {}

    def scalar(self, name: str, row: int) -> Any:
        if name not in self._columns:
            self._columns[name] = self._column(name).to_pylist()
        return self._columns[name][row]

    def array(self, name: str, row: int) -> npt.NDArray[Any]:
        values, offsets = self._list(name)
        view: npt.NDArray[Any] = values[offsets[row] : offsets[row + 1]]
        return view

    def structs(self, name: str, row: int) -> list[dict[str, Any]]:
        values, offsets = self._list(name)
        made: list[dict[str, Any]] = values.slice(offsets[row], offsets[row + 1] - offsets[row]).to_pylist()
        return made

    def _list(self, name: str) -> tuple[Any, list[int]]:
        if name not in self._lists:
            column = self._column(name)
            if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
                raise DataError(f"read column {name}: it is {column.type}, and a list is needed")
            if column.null_count:  # flatten would drop what is under them, and shift the rows after
                raise DataError(f"read column {name}: {column.null_count} of its lists are null")
            # Both honour a slice: offsets are its own, flatten begins at its first.
            offsets = column.offsets.to_numpy()
            values = column.flatten()
            if name in _LISTS:
                values = _numpy(name, values)
            self._lists[name] = values, (offsets - offsets[0]).tolist()
        return self._lists[name]

    def _column(self, name: str) -> Any:
        if name not in self.names:
            raise DataError(f"read column {name}: the table does not have it (an export has no columns of a lease)")
        return self.batch.column(name)


def _numpy(name: str, values: Any) -> npt.NDArray[Any]:
    if values.type != _LISTS[name]:
        values = values.cast(_LISTS[name])
    if values.null_count and name != "logprobs":
        raise DataError(f"read column {name}: {values.null_count} of its elements are null")
    if values.null_count:  # in one pass; to_numpy would do it too, at half the speed
        values = pc.fill_null(values, NAN)
    out: npt.NDArray[Any] = values.to_numpy()
    return out.view(np.bool_) if name == "loss_mask" else out
