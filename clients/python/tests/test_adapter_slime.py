"""slime and miles: what they are given, and what they would make of it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from icecore.adapters import miles, slime
from icecore.adapters.feed import Feed
from icecore.adapters.rows import ready
from icecore.errors import DataError
from icecore.lease import Batch
from shapes import miles as miles_shape
from shapes import slime as slime_shape
from shapes.leases import Leases
from tables import delivered, row

SLIME = slime.Types(slime_shape.Sample, slime_shape.RolloutFnTrainOutput, versions=True, by_position=True)
MILES = slime.Types(miles_shape.Sample, miles_shape.RolloutFnTrainOutput, versions=False, by_position=False)


def args(**more):
    base = dict(
        rollout_batch_size=2,
        n_samples_per_prompt=2,
        global_batch_size=4,
        advantage_estimator="grpo",
        rewards_normalization=False,
        colocate=True,
        rollout_temperature=1.0,
    )
    return SimpleNamespace(**{**base, **more})


def table(**meta):
    """g-0: r-a of two rows (A .5), r-b (A -.5); g-1: r-c (A 2, missing a log-prob), r-d never scored."""
    return delivered(
        [
            row([10, 11, 12, 13, 20, 14], [0, 0, 1, 1, 0, 1], [None, None, -0.1, -0.2, None, -0.3],
                group_id="g-0", rollout_id="r-a", reward=1.0, advantage=0.5, policy_version=7),
            row([10, 15], [0, 1], group_id="g-0", rollout_id="r-a", reward=1.0, advantage=0.5, finish_reason="length"),
            row([10, 11, 16], [0, 0, 1], group_id="g-0", rollout_id="r-b", reward=0.0, advantage=-0.5, weight=0.5),
            row([30, 31, 32], [0, 1, 1], group_id="g-1", rollout_id="r-c", reward=2.0, advantage=2.0),
            row([30, 33, 34], [0, 1, 1], group_id="g-1", rollout_id="r-d"),
        ],
        **meta,
    )


def made(options=None, types=SLIME, rows=None, **changed):
    options = options or slime.Options()
    a = args(**changed)
    prepared = ready(Batch.of_table(rows if rows is not None else table()), score=options.score, missing=options.missing)
    return slime.samples(prepared, a, options, types), a


def test_samples_are_response_aligned_and_carry_the_scaled_advantage():
    groups, _ = made()
    a, a2, b = groups[0]
    assert a.tokens == [10, 11, 12, 13, 20, 14] and a.response_length == 4 and a.loss_mask == [1, 1, 0, 1]
    assert a.rollout_log_probs == pytest.approx([-0.1, -0.2, 0.0, -0.3])
    assert (a.group_index, a.index, a.rollout_id) == (0, 0, 0) and a.weight_versions == ["7"]
    assert (a2.rollout_id, b.rollout_id) == (0, 1)
    assert (a.reward, b.reward) == (0.5, -0.25)
    assert (a.metadata["raw_reward"], b.metadata["raw_reward"]) == (1.0, 0.0)
    assert a.metadata["icecore"]["trajectory_id"] == "tr_0"
    assert (a.status.name, a2.status.name) == ("COMPLETED", "TRUNCATED")


def test_a_rollout_never_scored_trains_nothing():
    groups, _ = made()
    c, d = groups[1]
    assert c.loss_mask == [1, 1] and d.loss_mask == [0] and d.reward == 0.0
    assert d.metadata["raw_reward"] != d.metadata["raw_reward"], "not 0.0: it has none"


def test_the_loss_counts_rollouts_not_rows():
    groups, a = made()
    data = slime_shape.train_data(a, slime_shape.RolloutFnTrainOutput(groups))
    assert data["rollout_mask_sums"] == [4, 4, 1, 2, 0]
    assert slime_shape.rollout_mean(data, 4) == pytest.approx({0: 0.5 / 4, 1: -0.25 / 4, 2: 2.0 / 4, 3: 0.0})


def test_nothing_real_is_dropped_at_the_end_of_a_batch():
    """3 rollouts and steps of 2: slime would drop the third."""
    rows = [row([1, 2], [0, 1], rollout_id=f"r-{i}", reward=1.0, advantage=1.0) for i in range(3)]
    groups, a = made(rows=delivered(rows), global_batch_size=2)
    filler = groups[-1][0]
    assert filler.rollout_id == 3 and filler.group_index == 1 and filler.loss_mask == [0] and filler.reward == 0.0
    shares = slime_shape.rollout_mean(slime_shape.train_data(a, slime_shape.RolloutFnTrainOutput(groups)), 2)
    assert shares == pytest.approx({0: 0.5, 1: 0.5, 2: 0.5, 3: 0.0})


def test_a_batch_of_dynamic_size_is_not_filled():
    rows = [row([1, 2], [0, 1], rollout_id=f"r-{i}", reward=1.0, advantage=1.0) for i in range(3)]
    groups, _ = made(rows=delivered(rows), global_batch_size=2, use_dynamic_global_batch_size=True)
    assert len(groups) == 1


def test_an_old_slime_that_counts_rows_is_refused():
    old = slime.Types(slime_shape.OldSample, slime_shape.RolloutFnTrainOutput, versions=True, by_position=True)
    with pytest.raises(DataError, match="rollout 0 has 2 rows.*no rollout_id"):
        made(types=old)


def test_slimes_own_means_go_by_position_and_are_refused_where_they_would_be_wrong():
    """slime#2062: groups [1, 3] and [5] became one group; the adapter does not hand them over."""
    groups = [("g-0", 1.0), ("g-0", 3.0), ("g-1", 5.0)]
    rows = [row([1, 2], [0, 1], rollout_id=f"r-{i}", group_id=g, reward=r) for i, (g, r) in enumerate(groups)]
    with pytest.raises(DataError, match="group g-1 has rollouts of 1 rows.*needs 2 rollouts"):
        made(slime.Options(score="reward"), rows=delivered(rows), rewards_normalization=True)
    whole, a = made(slime.Options(score="reward"), rows=delivered(rows[:2]), global_batch_size=2, rollout_batch_size=1)
    data = slime_shape.train_data(args(rewards_normalization=True, rollout_batch_size=1), slime_shape.RolloutFnTrainOutput(whole))
    assert data["rewards"] == pytest.approx([-0.7071, 0.7071], abs=1e-4)


def test_miles_takes_its_means_per_rollout():
    """miles#2378: A has two rows and counts once."""
    rows = [
        row([1, 2], [0, 1], rollout_id="A", reward=1.0),
        row([1, 3], [0, 1], rollout_id="A", reward=1.0),
        row([1, 4], [0, 1], rollout_id="B", reward=0.5),
    ]
    options = slime.Options(score="reward")
    groups, _ = made(options, types=MILES, rows=delivered(rows), global_batch_size=2)
    flat = [s for g in groups for s in g]
    for s in flat:
        s.validate()
        assert s.weight_versions == []
    assert miles_shape.normalised(flat) == pytest.approx([0.7071, 0.7071, -0.7071], abs=1e-4)
    unscored = [*rows, row([1, 5], [0, 1], rollout_id="C")]
    with pytest.raises(DataError, match="2, 1, unscored rows"):
        made(options, types=MILES, rows=delivered(unscored))


def call(client, monkeypatch, options=None, rollout_id=3, **changed):
    monkeypatch.setattr(slime, "client_for", lambda url, key: client)
    monkeypatch.setattr(slime, "_feeds", getattr(client, "feeds", {}))
    client.feeds = slime._feeds
    return slime.rollout(args(**changed), rollout_id, False, options or slime.Options(consumer="l"), SLIME)


def test_the_rollout_function_leases_exactly_the_groups_and_acknowledges_with_the_next(monkeypatch):
    client = Leases(table(), table())
    out = call(client, monkeypatch, slime.Options(consumer="l", max_staleness=2, lease={"row_weight": "none"}))
    assert client.asked == [
        {"consumer": "l", "wait": 30.0, "row_weight": "none", "groups": 2, "policy_version": 3, "max_staleness": 2}
    ]
    assert out.metrics["icecore/rollouts"] == 4 and out.metrics["icecore/unscored_rollouts"] == 1
    assert out.metrics["icecore/reward"] == 1.0 and out.metrics["icecore/noop_rollouts"] == 0
    assert client.states == ["open", "open"]
    call(client, monkeypatch, slime.Options(consumer="l"), rollout_id=4)
    assert client.states == ["acknowledged", "open"]
    slime.finish()
    assert client.states == ["acknowledged", "acknowledged"]


@pytest.mark.parametrize("weight", ["rollout_mean", "session_mean"])
def test_rollouts_are_not_weighed_twice(monkeypatch, weight):
    client = Leases(table())
    with pytest.raises(DataError, match=f"row_weight {weight} would weigh them twice"):
        call(client, monkeypatch, slime.Options(consumer="l", lease={"row_weight": weight}))
    assert not client.asked


def test_a_trainer_that_asks_one_ahead_is_acknowledged_one_later(monkeypatch):
    client = Leases(table(), table(), table())
    for n in range(3):
        call(client, monkeypatch, rollout_id=n, colocate=False)
        assert client.states[0] == ("acknowledged" if n == 2 else "open")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"rewards_normalization": True}, "--disable-rewards-normalization"),
        ({"normalize_advantages": True}, "--normalize-advantages"),
        ({"advantage_estimator": "ppo"}, "--advantage-estimator ppo"),
    ],
)
def test_settings_that_would_change_our_advantages_are_refused(monkeypatch, changed, why):
    client = Leases(table())
    with pytest.raises(DataError, match=why):
        call(client, monkeypatch, **changed)
    assert client.asked == [], "nothing is leased for a run that cannot use it"


def test_the_sampling_temperature_must_be_the_trainers(monkeypatch):
    with pytest.raises(DataError, match="the trainer computes at 0.8"):
        call(Leases(table()), monkeypatch, rollout_temperature=0.8)


def test_evaluation_is_not_ours():
    with pytest.raises(DataError, match="--eval-function-path"):
        slime.rollout(args(), 0, True, slime.Options(), SLIME)


def test_options_are_read_from_args():
    a = args(icecore_url="http://x", icecore_missing="mask", icecore_lease={"seed": 1})
    assert slime.Options.of(a, consumer="miles") == slime.Options(
        url="http://x", missing="mask", lease={"seed": 1}, consumer="miles"
    )


def test_a_feed_is_made_once_per_server_and_consumer(monkeypatch):
    monkeypatch.setattr(slime, "client_for", lambda url, key: Leases())
    monkeypatch.setattr(slime, "_feeds", {})
    first = slime.feed_of(args(), slime.Options())
    assert isinstance(first, Feed) and first is slime.feed_of(args(), slime.Options()) and first.lag == 1


@pytest.mark.parametrize(("name", "entry", "shape"), [("slime", slime, slime_shape), ("miles", miles, miles_shape)])
def test_the_entry_points_use_the_trainers_own_classes(monkeypatch, name, entry, shape):
    types, base = ModuleType(f"{name}.utils.types"), ModuleType(f"{name}.rollout.base_types")
    types.Sample, base.RolloutFnTrainOutput = shape.Sample, shape.RolloutFnTrainOutput
    for module in (name, f"{name}.utils", f"{name}.rollout"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    for module in (types, base):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    client = Leases(table())
    monkeypatch.setattr(slime, "client_for", lambda url, key: client)
    monkeypatch.setattr(slime, "_feeds", {})
    out = entry.generate_rollout(args(), 0, None)
    assert type(out) is shape.RolloutFnTrainOutput and type(out.samples[0][0]) is shape.Sample
    assert client.asked[0]["consumer"] == name
