"""Off-policy metrics against numbers made by hand, and against what breaks them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import delivered, row, span

from icecore.errors import DataError
from icecore.mismatch import icepop_weights, keep_row, mismatch, staleness, truncated_weights
from icecore.rows import rows_of

# d = 0.1, -0.2, 0.4 at the three trained tokens.
SAMPLER = np.asarray([np.nan, -1.0, -0.5, np.nan, -2.0])
TRAINER = np.asarray([-3.0, -0.9, -0.7, -9.0, -1.6])
MASK = np.asarray([0, 1, 1, 0, 1])


def test_numbers_made_by_hand():
    m = mismatch(TRAINER, SAMPLER, MASK)
    ratios = [math.exp(0.1), math.exp(-0.2), math.exp(0.4)]
    assert (m.tokens, m.missing, m.rows) == (3, 0, 1)
    assert m.k1 == pytest.approx(-0.1)
    assert m.k2 == pytest.approx((0.01 + 0.04 + 0.16) / 6)
    assert m.k3 == pytest.approx((sum(ratios) - 0.3 - 3) / 3)
    assert (m.abs_mean, m.abs_max) == (pytest.approx(0.7 / 3), pytest.approx(0.4))
    gaps = [abs(math.exp(new) - math.exp(old)) for new, old in ((-0.9, -1.0), (-0.7, -0.5), (-1.6, -2.0))]
    assert (m.prob_mean, m.prob_max) == (pytest.approx(sum(gaps) / 3), pytest.approx(max(gaps)))
    assert m.pearson == pytest.approx(np.corrcoef(np.exp([-0.9, -0.7, -1.6]), np.exp([-1.0, -0.5, -2.0]))[0, 1])
    assert m.mult_error == pytest.approx((math.exp(0.1) + math.exp(0.2) + math.exp(0.4)) / 3)
    assert (m.log_ppl_diff, m.ppl_ratio) == (pytest.approx(-0.1), pytest.approx(math.exp(-0.1)))
    assert m.chi2_token == pytest.approx(sum(r * r for r in ratios) / 3 - 1)
    assert m.chi2_row == pytest.approx(math.exp(0.6) - 1)
    assert m.ess == pytest.approx(sum(ratios) ** 2 / 3 / sum(r * r for r in ratios))
    assert m.row_ess == 1
    assert (m.ratio_min, m.ratio_max) == (pytest.approx(ratios[1]), pytest.approx(ratios[2]))
    assert m.ratio_mean == pytest.approx(sum(ratios) / 3)
    assert m.dict("mismatch/")["mismatch/k3"] == m.k3


def test_metrics_of_rows_are_means_over_rows():
    trainer = [np.asarray([-1.0, -1.0]), np.asarray([-1.0] * 4), np.asarray([-7.0])]
    sampler = [np.asarray([-1.5, -1.5]), np.asarray([-0.9] * 4), np.asarray([-1.0])]
    m = mismatch(trainer, sampler, [np.ones(2), np.ones(4), np.zeros(1)])
    assert (m.tokens, m.rows) == (6, 2)
    assert m.k1 == pytest.approx((-0.5 * 2 + 0.1 * 4) / 6)
    assert m.log_ppl_diff == pytest.approx((-0.5 + 0.1) / 2)
    assert m.chi2_row == pytest.approx((math.exp(2 * 1.0) + math.exp(-2 * 0.4)) / 2 - 1)
    block = mismatch(np.stack([trainer[0]] * 2), np.stack([sampler[0]] * 2), np.ones((2, 2)))
    assert (block.tokens, block.rows) == (4, 2)


def finite(m):
    return all(math.isfinite(v) for v in m.dict().values())


def test_what_is_not_trained_does_not_count():
    """Row 23, prime-rl#2084, NeMo-RL#4120: l = -1 and b = -100 where the mask is 0."""
    trainer, sampler = np.asarray([-1.0, -1.0, -2.0]), np.asarray([-100.0, -1.1, -1.9])
    mask = np.asarray([0, 1, 1])
    m = mismatch(trainer, sampler, mask)
    assert finite(m) and m.abs_max == pytest.approx(0.1)
    assert m == mismatch(trainer[1:], sampler[1:], mask[1:])
    weights = truncated_weights(trainer, sampler, mask)
    assert weights.weights[0] == 0 and weights.changed == 0


def test_only_what_goes_into_an_exp_is_clamped():
    """As the server does: a gap of 99 nats is one of 99, not of 20."""
    m = mismatch(np.asarray([-1.0, -1.0]), np.asarray([-100.0, -1.0]), np.ones(2))
    assert (m.k1, m.k2, m.abs_mean, m.abs_max, m.log_ppl_diff) == (-99 / 2, 99 * 99 / 4, 99 / 2, 99, -99 / 2)
    assert m.ratio_max == m.mult_error * 2 - 1 == math.exp(20) and m.ppl_ratio == math.exp(-20)
    low = mismatch(np.asarray([-100.0]), np.asarray([-1.0]), np.ones(1))
    assert low.k3 == pytest.approx(math.exp(-20) + 99 - 1)
    gone = mismatch(np.asarray([-math.inf]), np.asarray([-1.0]), np.ones(1))
    assert gone.abs_max == 20


numbers = st.one_of(st.floats(-1e30, 0), st.sampled_from([-math.inf, math.nan, 0.0, -100.0, -745.0]))


@given(st.lists(st.tuples(numbers, numbers, st.booleans()), min_size=1, max_size=12))
def test_everything_is_finite_whatever_comes(tokens):
    trainer, sampler, mask = (np.asarray(column) for column in zip(*tokens, strict=True))
    with np.errstate(all="raise", under="ignore"):
        m = mismatch(trainer, sampler, mask)
        known = mask & ~np.isnan(trainer) & ~np.isnan(sampler)
        assert (m.tokens, m.missing) == (known.sum(), mask.sum() - known.sum())
        if m.tokens:
            assert all(math.isfinite(v) for k, v in m.dict().items() if k != "pearson")
            assert m.k3 >= -1e-9 and 0 < m.ess <= 1 + 1e-9
        for weigh in (truncated_weights, icepop_weights):
            weights, changed = weigh(trainer, sampler, mask)
            assert np.isfinite(weights).all() and 0 <= changed <= 1
            assert not weights[~known].any()
        assert isinstance(keep_row(trainer, sampler, mask), bool)


def test_no_evidence_is_nan_not_zero():
    m = mismatch(TRAINER, SAMPLER, np.zeros(5))
    assert (m.tokens, m.missing, m.rows) == (0, 0, 0)
    assert math.isnan(m.k3) and math.isnan(m.ratio_max)
    assert math.isnan(mismatch([-1.0, -1.0], [-1.0, -1.0], [1, 1]).pearson)


def test_missing_log_probs_are_counted_and_left_out():
    m = mismatch([-1.0, -1.0, -1.0], [-1.0, np.nan, -1.5], [1, 1, 1])
    assert (m.tokens, m.missing) == (2, 1) and m.k1 == pytest.approx(-0.25)


def test_float32_rows_are_computed_in_float64():
    """A gap of 1e-4 over a million tokens does not drown."""
    old = np.full(1_000_000, -1.0, np.float32)
    new = np.full(1_000_000, np.float32(-1.0) + np.float32(1e-4), np.float32)
    exact = float(new[0]) - float(old[0])
    assert mismatch(new, old, np.ones(1_000_000)).k1 == pytest.approx(-exact, rel=1e-9)


def test_weights_clamp_or_drop():
    trainer, sampler, mask = np.log([1.0, 0.9, 0.3, 0.5]), np.log([1.0, 0.3, 0.9, 0.5]), np.asarray([0, 1, 1, 1])
    tis = truncated_weights(trainer, sampler, mask, 0.5, 2.0)
    np.testing.assert_allclose(tis.weights, [0, 2.0, 0.5, 1.0])
    assert tis.changed == pytest.approx(2 / 3)
    pop = icepop_weights(trainer, sampler, mask, 0.5, 5.0)
    np.testing.assert_allclose(pop.weights, [0, 3.0, 0, 1.0])
    assert pop.changed == pytest.approx(1 / 3)


def test_a_row_is_kept_by_its_sum_or_its_mean():
    sampler, mask = np.full(100, -1.0), np.ones(100)
    assert keep_row(sampler + 0.010, sampler, mask)  # e^1
    assert not keep_row(sampler + 0.012, sampler, mask)  # e^1.2 > 3
    assert not keep_row(sampler + 0.010, sampler, mask, 0.999, 1.002, geometric=True)
    assert keep_row(sampler + 0.001, sampler, mask, 0.999, 1.002, geometric=True)
    assert keep_row(sampler + 9, sampler, np.zeros(100))


def test_shapes_that_differ_are_refused():
    with pytest.raises(DataError, match=r"shapes \(2,\), \(3,\) and \(3,\)"):
        mismatch([-1.0, -1.0], [-1.0] * 3, [1, 1, 1])
    with pytest.raises(DataError, match="1, 2 and 1 rows"):
        mismatch([np.zeros(2)], [np.zeros(2)] * 2, [np.ones(2)])


def test_staleness_is_of_trained_tokens():
    made = row([1, 2, 3, 4, 5, 6], [0, 1, 1, 0, 1, 1])
    made["spans"] = [span(1, 3, policy_version=4), span(4, 6, policy_version_spans=[(0, 6), (1, 7)])]
    unknown = row([1, 2], [0, 1])
    rows = rows_of(delivered([made, unknown]))
    assert staleness(rows, 8) == (4, 1, pytest.approx((4 + 4 + 2 + 1) / 4), 4.0, 1)
    none = staleness(rows[1:], 8)
    assert (none.tokens, none.unknown) == (0, 1) and math.isnan(none.mean) and math.isnan(none.worst)
