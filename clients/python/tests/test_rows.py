"""Rows against to_pylist, the three alignments, and the published worked example."""

import gc
import mmap
import weakref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import SCHEMA, delivered, row, span

from icecore.alignment import from_next, from_response, to_next, to_response
from icecore.errors import DataError
from icecore.rows import groups_of, rollout_reward, rollouts_of, rows_of

MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0)

# learners.md: 20 is a tool's token.
WORKED = row(
    [10, 11, 12, 13, 20, 14],
    [0, 0, 1, 1, 0, 1],
    [None, None, -0.1, -0.2, None, -0.3],
    advantage=0.5,
    weight=2.0,
    reward=1.0,
)


def near(values, expect):
    """Equal as float32, null where NaN."""
    want = np.asarray([np.nan if v is None else v for v in expect], np.float32)
    return values.dtype == np.float32 and np.array_equal(values, want, equal_nan=True)


def test_the_worked_example_in_three_alignments():
    (r,) = rows_of(delivered([WORKED]))
    assert r.tokens.dtype == np.int32
    assert r.tokens.tolist() == [10, 11, 12, 13, 20, 14]
    assert r.mask.tolist() == [0, 0, 1, 1, 0, 1]
    assert near(r.logprobs, [None, None, -0.1, -0.2, None, -0.3])
    assert r.p == 2

    of_r = r.response()
    assert of_r.prompt.tolist() == [10, 11]
    assert of_r.response.tolist() == [12, 13, 20, 14]
    assert of_r.mask.tolist() == [1, 1, 0, 1]
    assert near(of_r.logprobs, [-0.1, -0.2, None, -0.3])

    of_n = r.shifted()
    assert of_n.inputs.tolist() == [10, 11, 12, 13, 20]
    assert of_n.targets.tolist() == [11, 12, 13, 20, 14]
    assert of_n.mask.tolist() == [0, 1, 1, 0, 1]
    assert near(of_n.logprobs, [None, -0.1, -0.2, None, -0.3])
    assert near(of_n.advantages, [0, 1, 1, 0, 1])  # advantage times weight


def test_the_mask_of_a_target_is_its_own():
    """Row 1, mlx-lm-lora#80: position 1 of N scores token 12, which is trained."""
    (r,) = rows_of(delivered([row([10, 11, 12, 13], [0, 0, 1, 0], advantage=1.0)]))
    shifted = r.shifted()
    assert shifted.mask.tolist() == [0, 1, 0]
    assert shifted.targets[shifted.mask].tolist() == [12]


def test_entry_t_comes_from_the_logits_before_it():
    """Row 2, maxtext#2103: recomputed from a model, T has nothing at 0, and t is from t - 1."""
    logits = np.log(np.asarray([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]))  # position, token
    tokens = [0, 1, 2]
    scored = [None] + [float(logits[t - 1, tokens[t]]) for t in (1, 2)]
    (r,) = rows_of(delivered([row(tokens, [0, 1, 1], scored)]))
    assert np.isnan(r.logprobs[0])
    np.testing.assert_array_equal(r.shifted().logprobs, logits[[0, 1], r.shifted().targets].astype(np.float32))


values = st.lists(st.floats(-50, 0, width=32), min_size=1, max_size=30).map(lambda v: np.asarray(v, np.float32))


@given(values, st.data())
def test_there_and_back_is_identity(t, data):
    """Row 3, prime-rl#1525: T to R to T, and T to N to T."""
    p = data.draw(st.integers(1, len(t)))
    t[:p] = np.nan
    np.testing.assert_array_equal(from_next(to_next(t), np.nan), t)
    np.testing.assert_array_equal(from_response(to_response(t, p), p, np.nan), t)
    assert to_next(t).base is not None and to_response(t, p).base is not None


def test_a_response_needs_a_prompt():
    (r,) = rows_of(delivered([row([1, 2], [1, 1], trajectory_id="tr_bare")]))
    with pytest.raises(DataError, match=r"row tr_bare.*at least one is needed"):
        r.response()
    with pytest.raises(DataError, match="row tr_bare"):
        r.shifted()
    for p in (0, 3):
        with pytest.raises(DataError):
            to_response(r.tokens, p)


mask_of_row = st.lists(st.integers(0, 1), min_size=1, max_size=8)
tables = st.lists(mask_of_row, min_size=1, max_size=9)


@given(tables, st.data())
def test_slices_and_chunks_are_honoured(masks, data):
    """Row 19, arrow#37733: a view of a slice is what to_pylist gives, log-probs and spans too."""
    table = delivered(
        row([100 * i + t for t in range(len(m))], m, [None if not b else -i - t / 8 for t, b in enumerate(m)])
        for i, m in enumerate(masks)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(masks)), max_size=4)))
    edges = list(zip([0, *cuts], [*cuts, len(masks)], strict=True))
    chunked = pa.concat_tables([table.slice(a, b - a) for a, b in edges])
    start = data.draw(st.integers(0, len(masks)))
    sliced = chunked.slice(start)
    rows = rows_of(sliced)
    assert [r.index for r in rows] == list(range(len(rows)))
    for r, want in zip(rows, sliced.to_pylist(), strict=True):
        assert r.id == want["trajectory_id"]
        assert r.tokens.tolist() == want["token_ids"]
        assert r.mask.tolist() == want["loss_mask"]
        assert near(r.logprobs, want["logprobs"])
        assert [(s.trace_id, s.start, s.end) for s in r.spans] == [
            (s["trace_id"], s["start"], s["end"]) for s in want["spans"]
        ]


def test_a_record_batch_slice_too():
    batch = delivered([row([1, 2], [0, 1]), row([3, 4, 5], [0, 1, 1])]).to_batches()[0]
    (r,) = rows_of(batch.slice(1))
    assert r.tokens.tolist() == [3, 4, 5]


def address(array):
    return array.__array_interface__["data"][0]


def test_ids_and_masks_are_the_memory_of_arrow():
    table = delivered([row([1, 2, 3], [0, 1, 1], [-1.0, -2.0, -3.0]), row([4, 5], [0, 1], [-4.0, -5.0])])
    rows = rows_of(table)
    for column, attribute in (("token_ids", "tokens"), ("loss_mask", "mask"), ("logprobs", "logprobs")):
        values = table[column].chunk(0).values.to_numpy()
        for at, r in zip((0, 3), rows, strict=True):
            assert address(getattr(r, attribute)) == address(values[at:])


def test_nothing_delivered_can_be_written_to():
    """Row 21, numpy side."""
    (r,) = rows_of(delivered([WORKED]))
    arrays = [r.tokens, r.mask, r.logprobs, r.trained_mask, r.token_advantages, *r.response(), *r.shifted()]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    changed = r.replace(mask=np.zeros(6, np.bool_))
    with pytest.raises(ValueError, match="read-only"):
        changed.mask[0] = True


def test_rows_and_arrays_keep_the_memory_alive_and_nothing_longer():
    ids = np.asarray([10, 11, 12], np.int32)
    freed = weakref.finalize(ids, lambda: None)
    lists = pa.ListArray.from_arrays([0, 3], pa.Array.from_buffers(pa.int32(), 3, [None, pa.py_buffer(ids)]))
    table = delivered([row([0, 0, 0], [0, 1, 1])])
    (r,) = rows_of(table.set_column(table.schema.get_field_index("token_ids"), "token_ids", lists))
    del table, lists, ids
    gc.collect()
    assert freed.alive
    tokens = r.tokens
    del r
    gc.collect()
    assert freed.alive and tokens.tolist() == [10, 11, 12]
    del tokens
    gc.collect()
    assert not freed.alive


def test_null_log_probs_become_nan_in_place():
    """Row 22: the neighbours do not move."""
    (r,) = rows_of(delivered([row([9, 1, 2, 3], [0, 1, 1, 1], [None, -0.1, None, -0.2])]))
    assert near(r.logprobs, [None, -0.1, None, -0.2])


def test_a_null_list_is_refused_not_dropped():
    table = delivered([row([1, 2], [0, 1]), row([3, 4], [0, 1])])
    lists = pa.ListArray.from_arrays([0, 2, 4], pa.array([1, 2, 3, 4], pa.int32()), mask=pa.array([True, False]))
    rows = rows_of(table.drop_columns("token_ids").append_column("token_ids", lists))
    with pytest.raises(DataError, match="column token_ids: 1 of its lists are null"):
        _ = rows[1].tokens


def test_leases_stay_chunks_whatever_their_offsets():
    """Row 20, arrow#43185, ray#29492: lists with 64-bit offsets, and chunks whose offsets begin far up."""
    one = delivered([row([1, 2, 3], [0, 1, 1])])
    large = pa.LargeListArray.from_arrays(pa.array([3, 5], pa.int64()), pa.array([0, 0, 0, 7, 8], pa.int32()))
    wide = pa.LargeListArray.from_arrays(pa.array([0, 2], pa.int64()), pa.array([0, 1], pa.int8()))
    other = delivered([row([7, 8], [0, 1])])
    for name, lists in (("token_ids", large), ("loss_mask", wide)):
        other = other.set_column(other.schema.get_field_index(name), name, lists)
    rows = rows_of(one) + rows_of(other)
    assert [r.tokens.tolist() for r in rows] == [[1, 2, 3], [7, 8]]
    assert rows[1].mask.tolist() == [False, True]


def test_leases_of_more_entries_than_int32_counts():
    """Row 20: two chunks of 1.2e9 entries each, in memory that is mapped and never touched."""
    count = 1_200_000_000
    untouched = pa.py_buffer(mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE))
    values = pa.Array.from_buffers(pa.int8(), count, [None, untouched], null_count=0)
    offsets = pa.py_buffer(np.asarray([0, count], np.int32).tobytes())
    masks = pa.Array.from_buffers(pa.list_(pa.int8()), 1, [None, offsets], null_count=0, children=[values])
    one = delivered([row([1, 2], [0, 1])])
    lease = one.set_column(one.schema.get_field_index("loss_mask"), "loss_mask", masks)
    rows = rows_of(pa.concat_tables([lease, lease]))
    assert [r.mask.size for r in rows] == [count, count]
    assert address(rows[0].mask) == address(rows[1].mask) == untouched.address
    assert not rows[1].mask[-1]


def test_versions_come_from_spans():
    made = row([1, 2, 3, 4, 5, 6], [0, 1, 1, 0, 1, 1])
    made["spans"] = [
        span(1, 3, policy_version=7),
        span(4, 6, policy_version=7, policy_version_spans=[(0, 7), (1, 8)]),
    ]
    (r,) = rows_of(delivered([made]))
    assert r.versions().tolist() == [-1, 7, 7, -1, 7, 8]
    assert r.versions().dtype == np.int64
    assert (r.policy_version_min, r.policy_version_max) == (7, 8)


def test_fields_of_spans_along_the_tokens():
    made = row([1, 2, 3, 4], [0, 1, 0, 1])
    made["spans"] = [span(1, 2, temperature=0.5, top_k=3), span(3, 4, temperature=None, trainable=False)]
    (r,) = rows_of(delivered([made]))
    temperatures = r.per_span("temperature", fill=1.0)
    assert temperatures.dtype == np.float32
    assert temperatures.tolist() == [1.0, 0.5, 1.0, 1.0]
    assert r.per_span("top_k", fill=-1).tolist() == [-1, 3, -1, -1]
    assert r.per_span("trainable", fill=False).tolist() == [False, True, False, False]
    assert r.per_span("trace_id", fill=None).tolist() == [None, "t-1", None, "t-3"]


def test_groups_are_lists_of_rollouts_of_rows():
    """Row 6, NeMo-RL#2176: by group_id, not by prompt; a rollout without one is alone."""
    table = delivered(
        [
            row([1, 2], [0, 1], group_id="a", rollout_id="a0"),
            row([1, 3], [0, 1], group_id="a", rollout_id="a0"),
            row([9, 2], [0, 1], group_id="a", rollout_id="a1"),
            row([1, 2], [0, 1], group_id="b", rollout_id="b0"),  # the prompt of group a
            row([1, 2], [0, 1], group_id=None, rollout_id="c"),
            row([1, 2], [0, 1], group_id=None, rollout_id="d"),
        ]
    )
    rows = rows_of(table)
    shape = [[len(rollout) for rollout in group] for group in groups_of(rows)]
    assert shape == [[2, 1], [1], [1], [1]]
    assert [[r.rollout_id for r in rollout] for rollout in rollouts_of(rows)] == [["a0", "a0"], ["a1"], ["b0"], ["c"], ["d"]]


def test_an_older_turn_without_log_probs_is_context():
    """Row 6: the prompt holds an assistant turn that nobody trains."""
    (r,) = rows_of(delivered([row([1, 50, 51, 2, 60, 61], [0, 0, 0, 0, 1, 1])]))
    assert not r.mask[:4].any() and np.isnan(r.logprobs[:4]).all()
    assert r.response().prompt.tolist() == [1, 50, 51, 2]


def test_a_rollout_has_one_reward():
    """Row 8, miles#2498: no pick, no sum."""
    rows = rows_of(
        delivered(
            [
                row([1, 2], [0, 1], rollout_id="torn", reward=2.0),
                row([1, 3], [0, 1], rollout_id="torn", reward=6.0),
                row([1, 3], [0, 1], rollout_id="unscored"),
            ]
        )
    )
    with pytest.raises(DataError, match=r"rollout torn: its 2 rows differ: \[2.0, 6.0\]"):
        rollout_reward(rows[:2])
    assert rollout_reward(rows[:1]) == 2.0
    assert rollout_reward(rows[2:]) is None


def test_without_a_reward_nothing_is_trained():
    (r,) = rows_of(delivered([row([1, 2, 3], [0, 1, 1])]))
    assert r.advantage is None and r.scaled_advantage is None
    assert not r.trained_mask.any() and r.mask.any()
    assert r.shifted().mask.tolist() == [False, False]
    assert r.shifted().advantages.tolist() == [0, 0]


def test_without_an_estimator_masks_stand_and_advantages_poison():
    (r,) = rows_of(delivered([row([1, 2, 3], [0, 1, 1])], estimator="none"))
    assert r.trained_mask.tolist() == [False, True, True]
    np.testing.assert_array_equal(r.token_advantages, np.asarray([0, np.nan, np.nan], np.float32))


def test_replace_leaves_table_and_row_alone():
    (r,) = rows_of(delivered([WORKED]))
    other = r.replace(advantage=-1.0, tokens=np.asarray([1, 2], np.int32))
    assert (other.advantage, len(other), other.id) == (-1.0, 2, r.id)
    assert (r.advantage, len(r)) == (0.5, 6)
    assert other.replace(weight=3.0).scaled_advantage == -3.0


def test_an_export_has_no_columns_of_a_lease():
    names = SCHEMA.names[: SCHEMA.names.index("group_index")]
    exported = delivered([row([1, 2, 3], [0, 1, 1])], estimator="none").select(names)
    (r,) = rows_of(exported)
    assert (r.advantage, r.weight, r.microbatch, r.mask.tolist()) == (None, 1.0, None, [0, 1, 1])
    with pytest.raises(DataError, match="column group_index: the table does not have it"):
        _ = r.group_index
