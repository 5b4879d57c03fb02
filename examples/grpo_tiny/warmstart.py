"""The warm start: a few seconds of supervised learning before GRPO begins.

It teaches how one walks, not where to: the replies that it imitates have the
right shape, one in four leads to the flag and the others are random. Where the
flag is, what follows from it, and to do it every time, GRPO has to find out.
"""

from __future__ import annotations

import random

import torch

import policy
from harness import History
from world import MOST_STEPS, STEPS, TRAIN, World

RIGHT = 0.25  # share of replies that lead towards the flag
BATCHES = 80
WALKS = 32  # in a batch


def train(seed: int) -> policy.Policy:
    """A policy that walks, mostly at random."""
    torch.manual_seed(seed)
    rng = random.Random(f"{seed}/warm start")
    model = policy.Policy()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(BATCHES):
        ids, mask = _batch(rng)
        loss = -(model.token_logprobs(ids) * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def _batch(rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Conversations as ids int64 [rows, T], and 1 where the walker speaks as mask [rows, T]."""
    talks = [ids for _ in range(WALKS) for ids in _walk(rng)]
    shape = len(talks), max(map(len, talks))
    ids, mask = torch.full(shape, policy.END), torch.zeros(shape)
    for row, talk in enumerate(talks):
        ids[row, : len(talk)] = torch.tensor(talk)
        speaking = False
        for t, token in enumerate(talk):
            mask[row, t] = float(speaking)
            speaking = token == policy.ROLES["assistant"] or (speaking and token != policy.END)
    return ids, mask


def _walk(rng: random.Random) -> list[list[int]]:
    """Ids of the conversations of one walk: one, or more when the history was cut."""
    world = World(rng.choice(TRAIN), str(rng.random()))
    history = History(world.look())
    talks = []
    while not world.over:
        prompt, reply = policy.render(history.messages), _reply(world, rng)
        history.add(reply, world.act(reply))
        if world.over or history.fresh:
            talks.append([*prompt, *policy.encode(reply), policy.END])
    return talks


def _reply(world: World, rng: random.Random) -> str:
    if rng.random() < RIGHT:
        x, y = world.distance()
        steps = ("r" if x > 0 else "l") * abs(x) + ("u" if y > 0 else "d") * abs(y)
        return steps[:MOST_STEPS]
    return "".join(rng.choice(list(STEPS)) for _ in range(rng.randint(1, MOST_STEPS)))
