"""SQL: a statement goes out, an Arrow table comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from . import stream
from ._http import Answer, Call, json_body
from .errors import TruncatedError

if TYPE_CHECKING:
    import pandas
    import polars

# Seconds that the server gives a statement that names no time (--sql-timeout).
SERVER_TIMEOUT = 60.0

Params = Sequence[Any] | Mapping[str, Any]


class Result:
    """Rows of a statement. Iterating gives a dict per row; columns of one name are
    all in ``arrow()``, and the last of them in a dict.

    ``truncated``: a limit cut the result. ``len()``: rows of this result.
    """

    def __init__(self, table: pa.Table, truncated: bool) -> None:
        self._table = table
        self.truncated = truncated

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def arrow(self) -> pa.Table:
        return self._table

    def polars(self) -> polars.DataFrame:
        """Needs the extra ``icecore[polars]``. Shares memory with ``arrow()``."""
        import polars

        frame = polars.from_arrow(self._table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def pandas(self) -> pandas.DataFrame:
        """Needs the extra ``icecore[pandas]``."""
        frame: pandas.DataFrame = self._table.to_pandas()
        return frame

    def value(self) -> Any:
        """The only value of a result of one row and one column."""
        if self._table.num_rows != 1 or self._table.num_columns != 1:
            raise ValueError(f"value() wants one row and one column; the result has {self._table.num_rows} and {self._table.num_columns}")
        return self._table.column(0)[0].as_py()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches():
            columns = [c.to_pylist() for c in batch.columns]
            for row in zip(*columns):
                yield dict(zip(batch.schema.names, row))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        cut = ", TRUNCATED" if self.truncated else ""
        return f"<icecore.Result: {self._table.num_rows} rows of {', '.join(self.columns)}{cut}>"


def statement(
    query: str,
    params: Params | None,
    limit: int | None,
    timeout: float | None,
    allow_truncated: bool,
    codec: str | None,
) -> Call[Result]:
    body: dict[str, Any] = {"sql": query}
    if params is not None:
        body["params"] = dict(params) if isinstance(params, Mapping) else list(params)
    if limit is not None:
        body["limit"] = limit
    if timeout is not None:
        body["timeout_ms"] = max(1, round(timeout * 1000))
    content, headers = json_body(body)

    def parse(answer: Answer) -> Result:
        table = stream.read(answer, "row_count")
        cut = stream.metadata(table).get("truncated") != "false"
        result = Result(table, cut)
        if cut and not allow_truncated and (limit is None or table.num_rows < limit):
            raise TruncatedError(
                f"the result was cut after {table.num_rows} rows by a limit of the server (--sql-max-rows, --sql-max-bytes): "
                "ask for less at once, or pass allow_truncated=True",
                result,
            )
        return result

    return Call(
        "POST",
        "/v1/sql",
        parse,
        headers={**headers, "Accept": stream.accept(codec)},
        content=content,
        wait=SERVER_TIMEOUT if timeout is None else timeout,
        stream=True,
        repeatable=False,
    )
