"""Advantages and row weights against numbers made by hand, which the server is tested against too."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import delivered, row

from icecore.errors import DataError
from icecore.estimate import advantages, row_weights
from icecore.rows import rollout_reward, rows_of

VECTORS = json.loads((Path(__file__).parents[3] / "testdata/conformance/advantages.json").read_text())


def named(cases):
    return [pytest.param(case, id=f"{i}-{case.get('estimator', case.get('row_weight'))}-{case['name']}") for i, case in enumerate(cases)]


def flat(groups):
    return [x for group in groups for x in group]


@pytest.mark.parametrize("case", named(VECTORS["advantages"]))
def test_advantages_as_the_server(case):
    rollouts = flat(case["groups"])
    names = [g for g, group in enumerate(case["groups"]) for _ in group]
    options = {k: case[k] for k in ("sigma", "epsilon", "single") if k in case}
    arguments = [r["reward"] for r in rollouts], names, case["estimator"]
    tokens = [sum(r["rows"]) for r in rollouts]
    if case.get("refused"):
        with pytest.raises(DataError, match="too large for float32"):
            advantages(*arguments, trained_tokens=tokens, **options)
        return
    got = advantages(*arguments, trained_tokens=tokens, **options)
    want = [math.nan if a is None else a for e in case["expect"] for a in e["advantages"]]
    np.testing.assert_allclose(got.advantage, want, rtol=1e-9, atol=0)
    assert got.zero_advantage.tolist() == [case["expect"][g]["zero_advantage"] for g in names]
    assert got.group_scored.tolist() == [case["expect"][g]["scored"] for g in names]
    for per_row, at in zip(flat(case.get("per_row", [])), got.advantage, strict=False):
        assert per_row == pytest.approx([at] * len(per_row), rel=1e-9)


@pytest.mark.parametrize("case", named(VECTORS["weights"]))
def test_row_weights_as_the_server(case):
    names = [i for i, rows in enumerate(case["rollouts"]) for _ in rows]
    got = row_weights(names, flat(case["rollouts"]), case["row_weight"])
    np.testing.assert_allclose(got, flat(case["expect"]), rtol=1e-9)
    for rollout, mass in enumerate(case.get("row_mean_mass", [])):
        of_rollout = [w for w, name in zip(got, names, strict=True) if name == rollout]
        assert sum(of_rollout) / len(names) == pytest.approx(mass)


@pytest.mark.parametrize("case", named(VECTORS["rows_refused"]))
def test_rows_that_disagree_are_refused(case):
    made = [row([1, 2], [0, 1], rollout_id=r["rollout_id"], reward=float(r["reward"])) for r in case["rows"]]
    with pytest.raises(DataError, match=f"rollout {case['names']}"):
        rollout_reward([r for r in rows_of(delivered(made)) if r.rollout_id == case["names"]])


def test_two_rollouts_in_three_rows_weigh_half_each():
    """Row 12, agent-lightning#593: a mean over rows with these weights is a mean over rollouts."""
    weights = row_weights(["a", "a", "b"], [4, 2, 9], "rollout_mean")
    mass = weights / 3
    assert mass[:2].sum() == pytest.approx(0.5) and mass[2] == pytest.approx(0.5)
    # Every trained token of rollout a counts alike.
    assert weights[0] / 4 == pytest.approx(weights[1] / 2)


def test_a_session_counts_once_however_many_rows_it_has():
    """Row 13, uni-agent#185, verl#7580: A has one row, B three: influence 1 : 1."""
    weights = row_weights(["a", "b", "b", "b"], [5, 1, 2, 3], "session_mean")
    assert weights[0] == pytest.approx(weights[1:].sum())


rewards_of_rollouts = st.lists(
    st.tuples(st.one_of(st.none(), st.floats(-1e6, 1e6)), st.integers(0, 4)), min_size=1, max_size=30
)


@given(rewards_of_rollouts, st.sampled_from(["grpo", "dr_grpo", "rloo", "maxrl"]), st.randoms())
def test_groups_do_not_know_each_other(rollouts, estimator, random):
    """Rows 9 and 10, slime#1918, AReaL#1419: whatever the order, and whoever else is in the lease."""
    rewards, groups = [r for r, _ in rollouts], [g for _, g in rollouts]
    together = advantages(rewards, groups, estimator)
    order = list(range(len(rollouts)))
    random.shuffle(order)
    shuffled = advantages([rewards[i] for i in order], [groups[i] for i in order], estimator)
    np.testing.assert_allclose(shuffled.advantage, together.advantage[order], rtol=1e-6, atol=1e-6)
    for group in set(groups):
        members = [i for i, g in enumerate(groups) if g == group]
        alone = advantages([rewards[i] for i in members], [group] * len(members), estimator)
        np.testing.assert_array_equal(alone.advantage, together.advantage[members])
        scored = [i for i in members if rewards[i] is not None]
        assert set(together.group_scored[members]) == {len(scored)}
        # Row 11, TRL#5902: who has no reward has no advantage, and is no 0.0 for the others.
        assert [np.isnan(together.advantage[i]) for i in members] == [rewards[i] is None for i in members]
        if scored:
            without = advantages([rewards[i] for i in scored], [group] * len(scored), estimator)
            np.testing.assert_array_equal(without.advantage, together.advantage[scored])
            assert abs(together.advantage[scored].sum()) <= 1e-6 * max(1.0, np.abs(together.advantage[scored]).max()) * len(scored)


def test_nan_is_a_missing_reward():
    got = advantages(np.asarray([1.0, np.nan, 0.0]), ["g"] * 3, "dr_grpo")
    np.testing.assert_array_equal(got.advantage, [0.5, np.nan, -0.5])


@pytest.mark.parametrize(
    ("message", "arguments", "options"),
    [
        ("2 rewards, but 1 group names", ([1, 2], ["g"]), {}),
        ("reward of rollout 1 is infinite", ([1, math.inf], ["g", "g"]), {}),
        ("estimator is 'ppo'", ([1], ["g"], "ppo"), {}),
        ("sigma is 'std'", ([1], ["g"]), {"sigma": "std"}),
        ("single is 'one'", ([1], ["g"]), {"single": "one"}),
        ("epsilon is -1", ([1], ["g"]), {"epsilon": -1}),
        ("needs the trained_tokens", ([1], ["g"], "reinforce_pp"), {}),
    ],
)
def test_what_is_refused(message, arguments, options):
    with pytest.raises(DataError, match=message):
        advantages(*arguments, **options)
