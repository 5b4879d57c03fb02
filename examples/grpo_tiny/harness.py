"""The harness: an agent program that walks, and knows nothing of training.

It speaks chat completions to the base URL that it is given, as any agent does.
Like others of its kind it asks again when a reply was broken off, forgets old
turns when its history grows long, and once in a while it dies.
"""

from __future__ import annotations

import http.client
import json
import random
from urllib.parse import urlsplit

from world import World

SYSTEM = "walk to the flag"
MOST_TOKENS = 5
TRIES = 4
REMEMBERED = 3  # turns kept in the history before it is cut
DIES = 0.003  # chance at each turn


class Died(Exception):
    """The harness ended in the middle of its rollout."""


class History:
    """The messages of a walk, cut when they grow long."""

    def __init__(self, view: str) -> None:
        self._begin(view)
        self.turns = 0

    def _begin(self, view: str) -> None:
        self.messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": view}]

    @property
    def fresh(self) -> bool:
        """Nothing was said in it yet."""
        return len(self.messages) == 2

    def add(self, reply: str, view: str) -> None:
        """A turn: what the model said, and what the walker saw then."""
        self.turns += 1
        if self.turns % REMEMBERED == 0:
            self._begin(f"after {self.turns} turns, {view}")
        else:
            self.messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": view}]


def walk(base_url: str, world: World, seed: str) -> None:
    """Walk until the world is over. Raises Died."""
    luck = random.Random(f"{seed}/harness")
    model = Model(base_url, luck)
    history = History(world.look())
    try:
        while True:
            if luck.random() < DIES:
                raise Died("the sandbox was lost")
            reply = model.ask(history.messages)
            view = world.act(reply)
            if world.over:
                return
            history.add(reply, view)
    finally:
        model.close()


class Model:
    """A chat completions client that asks again when a reply was broken off."""

    def __init__(self, base_url: str, luck: random.Random) -> None:
        url = urlsplit(base_url)
        self._path = url.path + "/chat/completions"
        self._connection = http.client.HTTPConnection(url.netloc, timeout=60)
        self._luck = luck

    def ask(self, messages: list[dict[str, str]]) -> str:
        for _ in range(TRIES):
            body = {"model": "walker", "messages": messages, "max_tokens": MOST_TOKENS, "temperature": 1,
                    "seed": self._luck.getrandbits(48)}
            self._connection.request("POST", self._path, json.dumps(body), {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            content = json.loads(answer.read())
            if answer.status != 200:
                raise Died(f"the model answered {answer.status}: {content}")
            choice = content["choices"][0]
            if choice["finish_reason"] != "abort":
                return str(choice["message"]["content"])
        raise Died(f"{TRIES} replies in a row were broken off")

    def close(self) -> None:
        self._connection.close()
