"""What a row must hold, and what is done where a log-prob is missing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import delivered, row, span

from icecore.checks import check, check_all, comparable, faults_of, fill_missing, gaps
from icecore.errors import DataError
from icecore.padding import noop
from icecore.rows import rows_of


def one(*arguments, **columns):
    (r,) = rows_of(delivered([row(*arguments, **columns)]))
    return r


masks = st.lists(st.integers(0, 1), min_size=1, max_size=20).map(lambda m: [0, *m, 1])


@given(masks)
def test_a_row_as_delivered_is_whole(mask):
    r = one(range(len(mask)), mask, reward=1.0, advantage=0.5)
    assert check(r) is r
    assert check(noop(r)).noop


@given(masks)
def test_shifting_one_side_alone_is_found(mask):
    """Row 3, prime-rl#1525: mask or log-probs moved by one."""
    r = one(range(len(mask)), mask)
    with pytest.raises(DataError, match=f"check row {r.id} of rollout {r.rollout_id}"):
        check(r.replace(logprobs=np.roll(r.logprobs, -1)))  # N laid on T
    with pytest.raises(DataError):
        check(r.replace(mask=np.roll(r.mask, -1)))
    with pytest.raises(DataError, match="entries of mask"):
        check(r.replace(mask=r.mask[1:]))


@pytest.mark.parametrize(
    ("fault", "changed"),
    [
        ("4 tokens, but 3 entries of logprobs", {"logprobs": np.zeros(3, np.float32)}),
        ("prompt_length is 1, but the first trained position is 2", {"p": 1}),
        ("trained_tokens is 3, but the mask has 2", {"trained_tokens": 3}),
        ("the log-prob at position 2 is infinite", {"logprobs": np.asarray([0, 0, -np.inf, 0], np.float32)}),
        ("the log-prob at position 3 is positive", {"logprobs": np.asarray([0, 0, 0, 0.5], np.float32)}),
        ("reward is inf", {"reward": math.inf}),
        ("advantage is nan", {"advantage": math.nan}),
        ("weight is -inf", {"weight": -math.inf}),
        ("mask and trainable spans differ at position 1", {"mask": np.asarray([0, 1, 1, 1], np.bool_)}),
        ("no token is trained", {"mask": np.zeros(4, np.bool_)}),
        (r"span \[2, 5\) of trace t-2 is out of order or of range", {"spans": [span(2, 5)]}),
    ],
)
def test_each_fault_is_named(fault, changed):
    from icecore.spans import Span

    if "spans" in changed:
        changed = {"spans": [Span.of(s) for s in changed["spans"]]}
    r = one([1, 2, 3, 4], [0, 0, 1, 1], reward=1.0, advantage=1.0)
    with pytest.raises(DataError, match=fault):
        check(r.replace(**changed))


@pytest.mark.parametrize(("above", "whole"), [(1e-7, True), (1e-3, True), (1.1e-3, False), (5, False)])
def test_rounding_is_no_fault(above, whole):
    r = one([1, 2, 3], [0, 1, 1])
    r = r.replace(logprobs=np.asarray([0, above, -1], np.float32))
    assert (faults_of(r) == []) is whole


def test_faults_of_the_table_itself_are_found():
    torn = row([1, 2, 3], [0, 1, 1])
    torn["spans"] = [span(1, 2), span(2, 3, trainable=False)]
    assert faults_of(rows_of(delivered([torn]))[0]) == ["mask and trainable spans differ at position 2"]
    missing = row([1, 2, 3], [0, 1, 1])
    missing["spans"] = [span(1, 2)]
    assert faults_of(rows_of(delivered([missing]))[0]) == ["mask and trainable spans differ at position 2"]
    bare = one([1, 2], [1, 1])
    assert faults_of(bare) == ["the first token is trained, and no logits score it"]
    crossed = row([1, 2, 3, 4], [0, 1, 1, 1])
    crossed["spans"] = [span(1, 3), span(2, 4)]
    assert "out of order" in faults_of(rows_of(delivered([crossed]))[0])[0]


HOLE = ([9, 1, 2, 3], [0, 1, 1, 1], [None, -0.5, None, -0.25])


def test_a_missing_log_prob_is_a_fault_unless_allowed():
    r = one(*HOLE)
    with pytest.raises(DataError, match="1 trained tokens have no log-prob, the first at position 2"):
        check(r)
    assert check(r, allow_missing=True) is r


def test_missing_log_probs_are_masked_raised_or_left_but_never_zero():
    """Row 22, TRL#6166, #6693: at a trained token there is no 0.0, and its neighbours do not move."""
    r = one(*HOLE)
    masked = fill_missing(r, "mask")
    assert masked.mask.tolist() == [False, True, False, True]
    assert masked.logprobs.tolist() == [0, -0.5, 0, -0.25]
    assert (masked.trained_tokens, masked.p) == (2, 1)
    assert check(masked) is masked
    with pytest.raises(DataError, match="1 of 3 trained tokens have no log-prob, the first at position 2"):
        fill_missing(r, "raise")
    left = fill_missing(r, "nan")
    np.testing.assert_array_equal(left.logprobs, np.asarray([0, -0.5, np.nan, -0.25], np.float32))
    assert left.mask.tolist() == r.mask.tolist()
    with pytest.raises(DataError, match="how is 'zero'"):
        fill_missing(r, "zero")


def test_masking_moves_the_first_trained_position():
    r = one([9, 1, 2], [0, 1, 1], [None, None, -0.25])
    masked = fill_missing(r, "mask")
    assert masked.p == 2 and masked.response().response.tolist() == [2]
    nothing = fill_missing(one([9, 1], [0, 1], [None, None]), "mask")
    assert (nothing.p, nothing.trained_tokens) == (2, 0) and not nothing.mask.any()


@given(masks, st.data())
def test_filled_rows_hold_numbers_where_a_loss_reads(mask, data):
    scored = [data.draw(st.sampled_from([None, -0.5])) if m else None for m in mask]
    r = fill_missing(one(range(len(mask)), mask, scored, advantage=1.0), "mask")
    assert np.isfinite(r.logprobs).all()
    assert not r.logprobs[~r.mask].any()
    assert r.mask.tolist() == [p is not None for p in scored]


@pytest.mark.parametrize(
    ("sampling", "fits"),
    [
        ({"temperature": 0.6, "logprobs_mode": "raw"}, False),
        ({"temperature": 0.6, "logprobs_mode": "unknown"}, False),
        ({"temperature": 0.6, "logprobs_mode": "processed"}, True),
        ({"temperature": 1.0, "logprobs_mode": "raw"}, True),
        ({"temperature": None, "logprobs_mode": "unknown"}, True),
        ({"top_p": 0.9, "logprobs_mode": "processed"}, False),
        ({"top_p": 0.9, "logprobs_mode": "raw"}, True),
        ({"top_k": 20, "logprobs_mode": "unknown"}, False),
        ({"top_p": 1.0, "top_k": -1, "logprobs_mode": "unknown"}, True),
    ],
)
def test_log_probs_of_another_distribution_are_flagged(sampling, fits):
    """Row 24, TRL#4159, vime#64."""
    r = one([1, 2, 3], [0, 1, 1], **sampling)
    assert comparable(r) == fits
    assert [g.startswith("span [1, 3) of trace t-1: ") for g in gaps(r)] == [True] * (not fits)


def test_only_trained_spans_have_to_compare():
    made = row([1, 2, 3, 4], [0, 0, 0, 1])
    made["spans"] = [span(1, 2, trainable=False, temperature=0.6), span(3, 4)]
    assert comparable(rows_of(delivered([made]))[0])


def test_rows_of_a_rollout_must_agree():
    rows = [
        row([1, 2], [0, 1], rollout_id="torn", reward=1.0, advantage=0.5),
        row([1, 3], [0, 1], rollout_id="torn", reward=1.0, advantage=-0.5),
    ]
    with pytest.raises(DataError, match=r"check rollout torn: advantage is 0.5 in row tr_0 and -0.5 in row tr_1"):
        check_all(rows_of(delivered(rows)))
    check_all(rows_of(delivered([rows[0], rows[0] | {"trajectory_id": "again"}])))
