"""SQL, exports and analyses against the real server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server

import icecore

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def filled(shared_client: icecore.Client) -> Iterator[icecore.Client]:
    c = shared_client
    with c.writer() as w:
        for r in range(5):
            for seq in range(2):
                prompt = list(range(10)) + ([10 + r, 11] if seq else [])
                w.trace(trace_id=f"r{r}-{seq}", rollout_id=f"r{r}", seq=seq, harness="h", policy_version=seq, finish_reason="stop",
                        prompt_token_ids=prompt, response_token_ids=[10 + r], response_logprobs=[-0.25])
            w.rollout(f"r{r}", split="train", group_id=f"g{r % 2}")
            w.finish(f"r{r}", "succeeded")
            w.reward(reward_id=f"w{r}", rollout_id=f"r{r}", value=r)
    c.post_traces([{"trace_id": "late", "rollout_id": "other", "seq": 0, "prompt_token_ids": [1]}], ack="queryable")
    yield c


def test_forms_of_a_result(filled: icecore.Client) -> None:
    result = filled.sql("SELECT rollout_id, count(*) AS calls FROM traces WHERE harness = 'h' GROUP BY ALL ORDER BY ALL")
    assert result.columns == ["rollout_id", "calls"]
    assert len(result) == 5 and not result.truncated
    assert list(result)[0] == {"rollout_id": "r0", "calls": 2}
    assert isinstance(result.arrow(), pa.Table)
    assert result.polars()["calls"].to_list() == [2] * 5
    assert result.pandas()["calls"].tolist() == [2] * 5


def test_parameters(filled: icecore.Client) -> None:
    assert filled.sql("SELECT $1 + 1", [2**62]).value() == 2**62 + 1
    assert filled.sql("SELECT count(*) FROM traces WHERE rollout_id = $who AND seq = $n", {"who": "r1", "n": np.int64(1)}).value() == 1
    assert filled.sql("SELECT ? IS NULL", [None]).value() is True


def test_a_wrong_statement_says_where(filled: icecore.Client) -> None:
    with pytest.raises(icecore.ProblemError) as caught:
        filled.sql("SELECT colour FROM traces")
    assert (caught.value.status, caught.value.code, caught.value.extra["column"]) == (422, "sql_binding", 8)


def test_a_limit_that_was_asked_for_marks_the_result(filled: icecore.Client) -> None:
    result = filled.sql("SELECT 1 FROM range(10)", limit=3)
    assert len(result) == 3 and result.truncated and "TRUNCATED" in repr(result)
    assert not filled.sql("SELECT 1 FROM range(3)", limit=3).truncated


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_codecs(filled: icecore.Client, codec: str | None) -> None:
    assert filled.sql("SELECT i FROM range(5000) t(i)", codec=codec).arrow()["i"].to_pylist() == list(range(5000))
    assert filled.trajectories(harness="h", codec=codec).num_rows == 5


def test_a_limit_of_the_server_raises(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Server(tmp_path_factory.mktemp("small"), "--sql-max-rows", "7").start()
    try:
        with icecore.Client(server.url) as c:
            with pytest.raises(icecore.TruncatedError, match="7 rows") as caught:
                c.sql("SELECT i FROM range(100) t(i)")
            assert len(caught.value.result) == 7
            assert c.sql("SELECT i FROM range(100) t(i)", allow_truncated=True).truncated
            assert not c.sql("SELECT i FROM range(7) t(i)").truncated
    finally:
        server.stop()


def test_export_pages_are_the_whole(filled: icecore.Client) -> None:
    whole = filled.trajectories(harness="h", complete=True)
    paged = filled.trajectories(harness="h", complete=True, page_rows=2)
    assert whole.num_rows == 5
    assert paged.to_pylist() == whole.to_pylist()
    assert paged.schema.metadata[b"icecore.rows"] == b"5"
    assert paged.schema.metadata[b"icecore.tokens"] == whole.schema.metadata[b"icecore.tokens"]


def test_export_goes_on_from_a_cursor(filled: icecore.Client) -> None:
    pages = list(filled.trajectory_pages(harness="h", page_rows=2))
    assert [p.table.num_rows for p in pages] == [2, 2, 1]
    assert pages[-1].next_cursor is None
    again = list(filled.trajectory_pages(harness="h", page_rows=2, cursor=pages[0].next_cursor))
    assert [p.table.to_pylist() for p in again] == [p.table.to_pylist() for p in pages[1:]]


def test_a_filter_with_a_typo_is_an_error(filled: icecore.Client) -> None:
    with pytest.raises(TypeError, match="harnes"):
        filled.trajectories(harnes="h")


def test_nothing_selected_is_an_empty_table(filled: icecore.Client) -> None:
    table = filled.trajectories(harness="nobody")
    assert table.num_rows == 0 and "token_ids" in table.column_names


def test_analytics(filled: icecore.Client) -> None:
    said = filled.analytics("summary", by=["harness", "split"], harness="h", k=[1, 2])
    assert said["by"] == ["harness", "split"]
    assert [(r["keys"], r["rollouts"]["count"]) for r in said["rows"]] == [({"harness": "h", "split": "train"}, 5)]


def test_status(filled: icecore.Client) -> None:
    assert filled.status()
