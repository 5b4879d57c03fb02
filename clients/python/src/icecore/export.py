"""Exports: trajectories that filters select, without a lease, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from . import stream
from ._http import Answer, Call

# Rows of a page: what is fetched again when a connection breaks.
PAGE_ROWS = 4096

FILTERS = frozenset(
    "rollout_id group_id task_id harness model split status complete policy end_of_turn policy_version_min policy_version_max".split()
)


@dataclass(frozen=True)
class Page:
    """Some rows. ``table`` has the columns of docs/api.md; ``meta`` what the server
    said about them. ``next_cursor``: goes on behind this page, in this process or a
    later one; None: it was the last."""

    table: pa.Table
    meta: dict[str, str]
    next_cursor: str | None


def page(filters: Mapping[str, Any], rows: int, cursor: str | None, codec: str | None) -> Call[Page]:
    unknown = sorted(set(filters) - FILTERS)
    if unknown:
        raise TypeError(f"no such filter: {', '.join(unknown)}; there are {', '.join(sorted(FILTERS))}")

    def parse(answer: Answer) -> Page:
        table = stream.read_rows(answer)
        meta = stream.metadata(table)
        following = meta.pop("next_cursor", None)
        # What holds for a page alone is not said of tables put together.
        return Page(table.replace_schema_metadata(), meta, following)

    params = {**filters, "limit": rows, "cursor": cursor, "format": "arrow"}
    return Call("GET", "/v1/trajectories", parse, params=params, headers={"Accept": stream.accept(codec)}, stream=True)


def joined(pages: list[Page]) -> pa.Table:
    """One table; its chunks are the pages' own memory."""
    table = pa.concat_tables([p.table for p in pages])
    sums = {k: str(sum(int(p.meta[k]) for p in pages)) for k in ("rows", "tokens", "trained_tokens")}
    kept = {k: v for k, v in pages[0].meta.items() if k in ("schema_version", "merge_policy")}
    return table.replace_schema_metadata({f"icecore.{k}": v for k, v in {**kept, **sums}.items()})
