"""An adapter on a real lease: what the server says is what the trainer gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from icecore.adapters import slime
from shapes import slime as shape


def send(client, rewards):
    """A group of rollouts: two calls that extend each other, then one that does not; the last is never rewarded."""
    with client.writer() as w:
        for i, reward in enumerate(rewards):
            rollout = f"r{i}"
            about = {"rollout_id": rollout, "policy_version": 1, "finish_reason": "stop"}
            w.rollout(rollout, group_id="g", group_size=len(rewards), harness="h")
            w.trace(trace_id=f"{rollout}-1", seq=1, prompt_token_ids=[1, 2], response_token_ids=[10 + i, 3],
                    response_logprobs=[-0.5, -0.25], **about)
            w.trace(trace_id=f"{rollout}-2", seq=2, prompt_token_ids=[1, 2, 10 + i, 3, 4], response_token_ids=[5],
                    response_logprobs=[-0.125], **about)
            w.trace(trace_id=f"{rollout}-3", seq=3, prompt_token_ids=[7, 8], response_token_ids=[9], response_logprobs=[-1.0], **about)
            w.finish(rollout, "succeeded")
            if reward is not None:
                w.reward(reward_id=f"w{i}", rollout_id=rollout, value=reward)


def test_slime_trains_on_a_lease_and_acknowledges_it_with_the_next(server, client, monkeypatch):
    send(client, [1.0, 0.0, None])
    args = SimpleNamespace(
        rollout_batch_size=1, n_samples_per_prompt=3, global_batch_size=4, rewards_normalization=False, colocate=True,
        icecore_url=server.url, icecore_lease={"require_reward": False, "estimator": "rloo"},
    )
    monkeypatch.setattr(slime, "_feeds", {})
    types = slime.Types(shape.Sample, shape.RolloutFnTrainOutput, versions=True, by_position=True)
    out = slime.rollout(args, 0, False, slime.Options.of(args), types)
    (group, noop) = out.samples
    assert sorted((s.rollout_id, tuple(s.tokens), tuple(s.loss_mask)) for s in group) == [
        (0, (1, 2, 10, 3, 4, 5), (1, 1, 0, 1)),
        (0, (7, 8, 9), (1,)),
        (1, (1, 2, 11, 3, 4, 5), (1, 1, 0, 1)),
        (1, (7, 8, 9), (1,)),
        (2, (1, 2, 12), (0,)),
        (2, (7, 8, 9), (0,)),
    ]
    assert {s.rollout_id: s.reward for s in group} == pytest.approx({0: 1.0, 1: -1.0, 2: 0.0}), "leave one out, no third score"
    assert group[0].weight_versions == ["1"] and noop[0].loss_mask == [0]
    feed = slime.feed_of(args, slime.Options.of(args))
    (batch,) = feed.out
    assert client.consumer("slime")["acknowledged"]["leases"] == 0
    slime.finish()
    assert batch.state == "acknowledged" and client.consumer("slime")["acknowledged"]["groups"] == 1
    feed.client.close()
