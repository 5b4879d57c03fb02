"""Packs and padded blocks: what goes in comes out, and positions decide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import delivered, row

from icecore.errors import DataError
from icecore.packing import pack, pack_ranks
from icecore.padding import fill_up, noop, pad
from icecore.rows import groups_of, rows_of


def rows_like(lengths, **columns):
    """Rows of these lengths with distinct ids; the second half of each is trained."""
    start, made = 100, []
    for i, n in enumerate(lengths):
        mask = [int(t >= max(1, n // 2)) for t in range(n)]
        scored = [-(t + 1) / 8 if m else None for t, m in enumerate(mask)]
        made.append(row(range(start, start + n), mask, scored, **{"advantage": i + 1.0, "weight": 0.5} | columns))
        start += n
    return rows_of(delivered(made))


lengths_of_rows = st.lists(st.integers(2, 40), min_size=1, max_size=25)


@given(lengths_of_rows, st.integers(8, 64), st.sampled_from([1, 2, 8]), st.integers(0, 9))
def test_packs_hold_every_row_once_and_unpack(lengths, budget, multiple, at_least):
    rows = rows_like(lengths)
    packs = pack(rows, budget, multiple, at_least=at_least, pad_id=7)
    assert len(packs) >= at_least
    assert sorted(i for p in packs for i in p.rows) == list(range(len(rows)))
    for p in packs:
        assert len(p) % multiple == 0
        assert len(p) <= budget or len(p.rows) == 1
        assert p.cu_seqlens.dtype == np.int32
        assert p.cu_seqlens[0] == 0 and p.cu_seqlens[-1] == len(p)
        assert len(p.row_index) == len(p.cu_seqlens) - 1
        restarts = np.flatnonzero(p.position_ids == 0)
        assert restarts.tolist() == p.cu_seqlens[:-1].tolist()
        parts = {name: p.unpack(getattr(p, name)) for name in ("tokens", "mask", "logprobs", "advantages")}
        for i in p.rows:
            r = rows[i]
            assert parts["tokens"][i].tolist() == r.tokens.tolist()
            assert parts["mask"][i].tolist() == r.mask.tolist()
            np.testing.assert_array_equal(parts["logprobs"][i][r.mask], r.logprobs[r.mask])
            np.testing.assert_array_equal(parts["advantages"][i], r.token_advantages)
        padding = np.ones(len(p), np.bool_)
        for i, start, end in zip(p.row_index, p.cu_seqlens[:-1], p.cu_seqlens[1:], strict=True):
            padding[start:end] = i < 0
        assert not p.mask[padding].any() and (p.tokens[padding] == 7).all()
        assert not p.advantages[~p.mask].any() and not p.logprobs[~p.mask].any()


def test_first_fit_by_decreasing_length():
    packs = pack(rows_like([3, 6, 4, 5, 2]), 10)
    assert [p.rows for p in packs] == [[1, 2], [0, 3, 4]]
    assert packs[1].cu_seqlens.tolist() == [0, 3, 8, 10]
    assert packs[1].position_ids.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1]
    assert packs[1].max_seqlen == 5


def test_no_target_lies_in_another_row():
    (p,) = pack(rows_like([4, 6, 3]), 100)
    targets = np.flatnonzero(p.mask)
    assert not set(targets) & set(p.cu_seqlens.tolist())


def test_a_row_longer_than_the_budget_is_alone():
    assert [p.rows for p in pack(rows_like([30, 4, 4]), 10)] == [[0], [1, 2]]


@pytest.mark.parametrize("whole", [True, False], ids=["one row of 100", "ten rows of 10"])
def test_ranks_run_equally_many(whole):
    """Row 15, verl#6176, #5511: 475 tokens against 100, a budget of 100: 5 micro-batches on both."""
    first, second = rows_like([95] * 5), rows_like([100] if whole else [10] * 10)
    ranks = pack_ranks([first, second], 100)
    assert [len(packs) for packs in ranks] == [5, 5]
    assert [sorted(i for p in packs for i in p.rows) for packs in ranks] == [
        list(range(5)),
        list(range(len(second))),
    ]
    empty = [p for p in ranks[1] if not p.rows]
    assert len(empty) == (4 if whole else 0)
    assert not any(p.mask.any() or p.advantages.any() for p in empty)
    # What a rank alone does with the number that others told it.
    alone = pack(second, 100, at_least=5)
    assert [p.rows for p in alone] == [p.rows for p in ranks[1]]


@given(st.lists(st.lists(st.integers(2, 30), max_size=8), min_size=1, max_size=4), st.integers(1, 3))
def test_counts_are_equal_for_any_ranks(ranks, multiple):
    packed = pack_ranks([rows_like(lengths) for lengths in ranks], 32, count_multiple=multiple)
    (count,) = {len(packs) for packs in packed}
    assert count % multiple == 0
    assert (count == 0) == (not any(ranks))
    for lengths, packs in zip(ranks, packed, strict=True):
        assert sorted(i for p in packs for i in p.rows) == list(range(len(lengths)))


def test_unscored_rows_are_packed_but_not_trained():
    (p,) = pack(rows_like([4, 4], advantage=None), 100)
    assert p.rows == [0, 1] and not p.mask.any() and not p.advantages.any()


def test_advantages_of_the_caller_stand_in():
    rows = rows_like([4, 4, 4], advantage=None)
    (p,) = pack(rows, 100, advantages=[2.0, None, -1.0])
    advantages = p.unpack(p.advantages)
    assert advantages[0].tolist() == [0, 0, 2, 2]  # not times weight
    assert advantages[1].tolist() == [0, 0, 0, 0] and not p.unpack(p.mask)[1].any()
    assert advantages[2].tolist() == [0, 0, -1, -1]
    with pytest.raises(DataError, match="2 advantages for 3 rows"):
        pack(rows, 100, advantages=[1.0, 2.0])


def test_a_missing_log_prob_stays_nan_when_packed_and_padded():
    """Row 22: at a trained token there is no filler."""
    rows = rows_of(delivered([row([5, 1, 2, 3], [0, 1, 1, 1], [None, -0.125, None, -0.25], advantage=1.0)]))
    expect = np.asarray([0, -0.125, np.nan, -0.25], np.float32)
    np.testing.assert_array_equal(pack(rows, 10)[0].logprobs, expect)
    np.testing.assert_array_equal(pad(rows, "right", 0).logprobs[0], expect)


def test_a_row_that_begins_trained_is_refused():
    rows = rows_of(delivered([row([1, 2], [1, 1], trajectory_id="tr_bare")]))
    with pytest.raises(DataError, match="row tr_bare begins with a trained token"):
        pack(rows, 10)


@pytest.mark.parametrize("arguments", [(0, 1), (7, 8), (10, 0)])
def test_impossible_budgets_are_refused(arguments):
    with pytest.raises(DataError, match="pack: "):
        pack(rows_like([4]), *arguments)


@given(lengths_of_rows, st.sampled_from(["left", "right"]), st.sampled_from([1, 8]))
def test_padding_round_trip(lengths, side, multiple):
    rows = rows_like(lengths)
    block = pad(rows, side, 0, multiple)
    width = block.tokens.shape[1]
    assert width % multiple == 0 and max(lengths) <= width < max(lengths) + multiple
    assert block.attention_mask.sum(1).tolist() == lengths
    edge = block.attention_mask[:, -1 if side == "left" else 0]
    assert edge.all()
    assert not block.mask[~block.attention_mask].any()
    for r, tokens, mask, advantages, position in zip(
        rows, *(block.unpad(a) for a in (block.tokens, block.mask, block.advantages, block.position_ids)), strict=True
    ):
        assert tokens.tolist() == r.tokens.tolist()
        assert mask.tolist() == r.mask.tolist()
        np.testing.assert_array_equal(advantages, r.token_advantages)
        assert position.tolist() == list(range(len(r)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_by_position_never_by_id(side):
    """Row 4, TRL#6357, Megatron-Bridge#4660: pad id = end of turn = 7."""
    rows = rows_of(delivered([row([5, 7, 6, 7], [0, 1, 1, 1], advantage=1.0)]))
    block = pad(rows, side, pad_id=7, multiple_of=8)
    at = slice(4, 8) if side == "left" else slice(0, 4)
    assert block.mask[0, at].tolist() == [False, True, True, True]
    assert block.mask.sum() == 3 and block.attention_mask.sum() == 4
    assert (block.tokens == 7).sum() == 6


def test_a_response_without_end_of_sequence_is_trained_to_its_end_and_no_further():
    """Row 5, verl#3805: response [5, 6], padded to 4."""
    rows = rows_of(delivered([row([9, 9, 9, 9, 5, 6], [0, 0, 0, 0, 1, 1], advantage=1.0)]))
    block = pad(rows, "right", pad_id=0, multiple_of=8)
    assert block.mask[0, 4:].tolist() == [True, True, False, False]


def test_no_op_rows_fill_up_and_stay_out():
    """Row 14, verl-omni#602, verl#5969: 7 rows for 4 ranks."""
    rows = rows_like([5, 4, 3, 6, 7, 8, 9])
    full = fill_up(rows, 4)
    assert len(full) == 8 and full[:7] == rows
    (extra,) = [r for r in full if r.noop]
    assert not extra.mask.any() and extra.advantage == 0 and extra.weight == 0 and extra.trained_tokens == 0
    assert extra.reward is None and extra.index == -1
    assert extra.token_advantages.tolist() == [0, 0]
    assert extra.id not in {r.id for r in rows} and [extra] in groups_of(full)[-1]
    assert extra.response().response.tolist() == extra.tokens[1:].tolist()
    block = pad(full, "right", 0)
    assert not block.mask[7].any() and not block.advantages[7].any()
    assert [r.noop for r in rows] == [False] * 7  # the row it was made of stands
    assert fill_up(full, 4) == full


def test_no_op_rows_differ_from_each_other():
    rows = rows_like([5])
    full = fill_up(rows, 4)
    assert len({r.id for r in full}) == 4
    assert len(noop(rows[0], length=4)) == 4
    assert fill_up([], 4) == []
