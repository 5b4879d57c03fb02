"""prime-rl: samples by shape, and a feed that acknowledges what the trainer stepped on."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from icecore.adapters.prime_rl import PrimeFeed, to_training_sample, training_samples
from icecore.adapters.rows import ready
from icecore.errors import DataError
from shapes import prime_rl as shape
from shapes.leases import Leases
from tables import delivered, row, span


def table():
    spans = [span(2, 4, temperature=0.6, logprobs_mode="processed"), span(5, 6, temperature=1.0)]
    worked = row([10, 11, 12, 13, 20, 14], [0, 0, 1, 1, 0, 1], [None, None, -0.1, -0.2, None, -0.3], spans=spans,
                 rollout_id="a", reward=1.0, advantage=0.5, weight=0.5)  # fmt: skip
    return delivered([worked, row([1, 2], [0, 1], rollout_id="b", reward=0.0, advantage=-1.0), row([1, 3], [0, 1], rollout_id="c")])


def samples(**more):
    return training_samples(Leases(table()).batches[0], sample=shape.TrainingSample, **more)


def test_everything_is_token_aligned():
    a, b = samples()
    assert shape.array(a)[:2] == [[10, 11, 12, 13, 20, 14], [False, False, True, True, False, True]]
    assert a.logprobs == pytest.approx([0, 0, -0.1, -0.2, 0, -0.3])
    assert a.temperatures == pytest.approx([1, 1, 0.6, 0.6, 1, 1])
    assert a.advantages == [0, 0, 0.25, 0.25, 0, 0.25] and b.advantages == [0, -1.0]
    assert a.env_name == "harness"


def test_the_token_mean_has_our_weights_and_no_unscored_row():
    assert shape.loss(samples()) == pytest.approx(-(3 * 0.25 - 1.0) / 4)


def test_an_older_prime_rl_is_refused():
    with pytest.raises(DataError, match="use a newer one"):
        to_training_sample(ready(Leases(table()).batches[0])[0], shape.OldSample)


def test_a_step_is_acknowledged_when_it_was_made(monkeypatch):
    types = ModuleType("prime_rl.transport.types")
    types.TrainingSample, types.TrainingBatch = shape.TrainingSample, shape.TrainingBatch
    for name, module in (("prime_rl", ModuleType("prime_rl")), ("prime_rl.transport", ModuleType("t")), (types.__name__, types)):
        monkeypatch.setitem(sys.modules, name, module)
    sent = []
    client = Leases(table(), table(), table())
    sender = type("Sender", (), {"send": staticmethod(sent.append)})
    feed = PrimeFeed(client, "prime", sender, row_weight="rollout_mean")
    for step in range(3):
        feed.send(step, groups=1)
    assert [(b.step, len(b.examples)) for b in sent] == [(0, 2), (1, 2), (2, 2)]
    assert client.asked[0] == {"consumer": "prime", "wait": 30.0, "row_weight": "rollout_mean", "groups": 1}
    assert feed.trained(1) == 2
    assert client.states == ["acknowledged", "acknowledged", "open"]
    feed.close()
    assert client.states[2] == "returned"
