"""The rules that all adapters share (learners.md section 6: rows 8, 11, 22, 24)."""

from __future__ import annotations

import numpy as np
import pytest
from icecore.adapters.feed import Feed
from icecore.adapters.rows import groups, ready, trained
from icecore.errors import DataError
from icecore.lease import Batch
from shapes.leases import Leases
from tables import delivered, row


def of(*rows, **meta):
    return Batch.of_table(delivered(rows, **meta))


WORKED = dict(token_ids=[10, 11, 12, 13, 20, 14], loss_mask=[0, 0, 1, 1, 0, 1], logprobs=[None, None, -0.1, -0.2, None, -0.3])


def test_a_row_as_it_is():
    (one,) = ready(of(row(**WORKED, reward=1.0, advantage=0.5, weight=0.5)))
    assert one.p == 2 and one.score == 0.25 and one.scored and one.trained == 3
    np.testing.assert_array_equal(one.mask, [0, 0, 1, 1, 0, 1])
    np.testing.assert_allclose(one.logprobs, [0, 0, -0.1, -0.2, 0, -0.3], rtol=1e-6)
    np.testing.assert_allclose(one.scores(), [0, 0, 0.25, 0.25, 0, 0.25])


def test_a_row_without_a_score_is_masked_and_short():
    batch = of(row(**WORKED), row([1, 2], [0, 1], reward=0.0, advantage=-1.0, group_id="g-0"))
    none, some = ready(batch)
    assert not none.scored and none.score == 0.0 and none.trained == 0 and len(none) == 3
    assert not none.mask.any() and not none.logprobs.any()
    assert some.scored and trained([none, some]) == [some]


def test_a_missing_logprob_raises_or_is_masked():
    batch = of(row([7, 8, 9, 6], [0, 1, 1, 1], [None, -0.1, None, -0.2], reward=1.0, advantage=1.0))
    with pytest.raises(DataError, match=r"row tr_0 of rollout r-0: 1 of 3 trained tokens .* position 2"):
        ready(batch)
    (one,) = ready(batch, missing="mask")
    np.testing.assert_array_equal(one.mask, [0, 1, 0, 1])
    np.testing.assert_allclose(one.logprobs, [0, -0.1, 0, -0.2], rtol=1e-6)


def test_the_response_stays_where_it_was_when_its_first_token_is_masked():
    batch = of(row([7, 8, 9, 6], [0, 1, 1, 1], [None, None, -0.1, -0.2], reward=1.0, advantage=1.0))
    (one,) = ready(batch, missing="mask")
    assert one.p == 1 and list(one.mask) == [False, False, True, True]


def test_a_masked_end_is_cut_so_that_the_last_token_is_trained():
    batch = of(row([7, 8, 9, 6], [0, 1, 1, 1], [None, -0.1, -0.2, None], reward=1.0, advantage=1.0))
    (one,) = ready(batch, missing="mask")
    assert list(one.tokens) == [7, 8, 9] and one.mask[-1]


@pytest.mark.parametrize(
    ("span", "temperature", "why"),
    [
        ({"temperature": 0.6, "logprobs_mode": "raw"}, None, "temperature 0.6 with log-probs raw"),
        ({"temperature": 0.6, "logprobs_mode": "processed"}, 1.0, "the trainer computes at 1"),
        ({"temperature": 1.0, "top_p": 0.9, "logprobs_mode": "processed"}, None, "top_p 0.9"),
    ],
)
def test_logprobs_that_do_not_compare_are_refused_unless_told(span, temperature, why):
    batch = of(row(**WORKED, reward=1.0, advantage=1.0, **span))
    with pytest.raises(DataError, match=why):
        ready(batch, temperature=temperature)
    assert len(ready(batch, temperature=temperature, comparable="assume")) == 1


def test_logprobs_of_the_trainers_temperature_are_taken():
    batch = of(row(**WORKED, reward=1.0, advantage=1.0, temperature=0.6, logprobs_mode="processed"))
    assert len(ready(batch, temperature=0.6)) == 1


@pytest.mark.parametrize("name", ["reward", "advantage"])
def test_rows_of_a_rollout_have_one_score(name):
    two = {"reward": 1.0, "advantage": 0.5}
    batch = of(
        row([1, 2], [0, 1], rollout_id="r-9", **two),
        row([1, 3], [0, 1], rollout_id="r-9", **{**two, name: 6.0}),
    )
    with pytest.raises(DataError, match=rf"rollout r-9.*{name}"):
        ready(batch)


def test_an_unprompted_row_is_refused():
    with pytest.raises(DataError, match="tr_0.*first token is trained"):
        ready(of(row([1, 2], [1, 1], reward=1.0, advantage=1.0)))


def test_rewards_for_trainers_that_take_their_own_means():
    batch = of(row([1, 2], [0, 1], reward=3.0), row([1, 3], [0, 1]), estimator="none")
    a, b = ready(batch, score="reward")
    assert a.score == 3.0 and not b.scored and b.trained == 0
    with pytest.raises(DataError, match='estimator "none"'):
        ready(batch)


def test_unknown_words_are_refused():
    for wrong in ({"missing": "zero"}, {"comparable": "yes"}, {"score": "a"}):
        with pytest.raises(DataError, match=next(iter(wrong))):
            ready([], **wrong)


def test_groups_keep_rollouts_together():
    rows = [("g-0", "a"), ("g-0", "a"), ("g-0", "b"), ("g-1", "c")]
    made = ready(of(*(row([1, 2], [0, 1], group_id=g, rollout_id=r, reward=1.0, advantage=0.0) for g, r in rows)))
    assert [[len(r) for r in g] for g in groups(made)] == [[2, 1], [1]]


ONE = delivered([row([1, 2], [0, 1], reward=1.0, advantage=0.0)])


@pytest.mark.parametrize(
    ("lag", "after"),
    [
        (1, [["open"], ["acknowledged", "open"], ["acknowledged", "acknowledged", "open"]]),
        (2, [["open"], ["open", "open"], ["acknowledged", "open", "open"]]),
    ],
)
def test_a_feed_acknowledges_what_the_next_call_proves(lag, after):
    client = Leases(ONE, ONE, ONE)
    feed = Feed(client, "learner", lag=lag, estimator="rloo")
    for n, states in enumerate(after):
        feed.next(groups=1)
        assert client.states[: n + 1] == states
    assert client.asked[0] == {"consumer": "learner", "wait": 30.0, "estimator": "rloo", "groups": 1}
    feed.stop()
    assert client.states[-lag:] == ["returned"] * lag


def test_a_feed_asks_again_while_nothing_is_ready():
    client = Leases(ONE)
    held, client.left = client.left, []
    feed = Feed(client, "learner")
    real = client.lease

    def lease(consumer, **fields):
        if len(client.asked) == 2:
            client.left = held
        return real(consumer, **fields)

    client.lease = lease
    assert feed.next().lease_id == "lease-0" and len(client.asked) == 3


def test_a_stopped_feed_does_not_wait():
    feed = Feed(Leases(), "learner")
    feed.stop()
    with pytest.raises(DataError, match="stopped"):
        feed.next()


def test_a_batch_that_cannot_be_acknowledged_does_not_stop_the_trainer(caplog):
    client = Leases(ONE, ONE)
    feed = Feed(client, "learner")
    feed.next()
    client.batches[0].nack()
    feed.next()
    assert "acknowledge lease lease-0" in caplog.text


def test_a_batch_that_could_not_be_used_is_returned_never_acknowledged():
    """Trainers go on after a hook that raised (AReaL, OpenRLHF), and ask for the next."""
    client = Leases(ONE, ONE)
    feed = Feed(client, "learner")
    batch = feed.next()
    with pytest.raises(DataError, match="no log-prob"):
        with feed.using(batch):
            raise DataError("no log-prob")
    assert client.states == ["returned", "open"] and not feed.out
    feed.next()
    assert client.states == ["returned", "open"]


def test_settling_some():
    client = Leases(ONE, ONE)
    feed = Feed(client, "learner", lag=2)
    feed.next(), feed.next()
    assert feed.settle(lambda b: b.lease_id == "lease-1") == 1
    assert client.states == ["open", "acknowledged"]
