"""Policy versions as trainers count them, without any of them installed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from icecore.adapters import slime
from icecore.adapters.feed import Feed
from icecore.adapters.rows import ready
from icecore.adapters.verl import steps_of
from icecore.errors import DataError
from icecore.lease import Batch
from shapes import slime as slime_shape
from shapes.leases import Leases
from tables import delivered, row


def one(**more):
    rows = [row([1, 2], [0, 1], reward=1.0, advantage=1.0, **more)]
    return ready(Batch.of_table(delivered(rows)))[0]


def test_verl_is_told_the_steps_that_sampled_a_row():
    assert steps_of(one(policy_version=103), 5, version_offset=100) == {"min_global_steps": 3, "max_global_steps": 3}


def test_a_row_of_unknown_version_is_not_fresh_to_verl_unless_told():
    with pytest.raises(DataError, match=r"row tr_0 of rollout r-0 .*policy version is not known.*unknown_version=current"):
        steps_of(one(), 5)
    assert steps_of(one(), 5, "current", 100) == {"min_global_steps": 5, "max_global_steps": 5}


def test_slime_names_its_version_as_the_traces_count(monkeypatch):
    table = delivered([row([1, 2], [0, 1], rollout_id=f"r-{i}", reward=1.0, advantage=1.0, policy_version=103) for i in range(2)])
    client = Leases(table)
    options = slime.Options(max_staleness=2, version_offset=100)
    monkeypatch.setitem(slime._feeds, (options.url, options.consumer), Feed(client, "slime"))
    args = SimpleNamespace(rollout_batch_size=1, n_samples_per_prompt=2, global_batch_size=2, rewards_normalization=False)
    types = slime.Types(slime_shape.Sample, slime_shape.RolloutFnTrainOutput, versions=True, by_position=True)
    slime.rollout(args, 3, False, options, types)
    assert client.asked[0]["policy_version"] == 103 and client.asked[0]["max_staleness"] == 2
