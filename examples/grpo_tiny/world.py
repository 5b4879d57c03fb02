"""The task: walk over ice to a flag.

A walker stands on a field of five by five squares and must *end a turn* on the
flag's square, within TURNS turns. A turn is a reply of one to three steps, such
as "ur" (up, then right); a reply of another shape is a turn lost. The ice is
slippery: now and then the last step of a turn is lost too, so a plan made once
does not do, the walker has to look where it stands. The reward is 1 for
reaching the flag, else 0.

A task is a start and a flag. Those in HELD_OUT are never trained on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SIZE = 5
TURNS = 5
MOST_STEPS = 3
SLIP = 0.1
STEPS = {"u": (0, 1), "d": (0, -1), "l": (-1, 0), "r": (1, 0)}

Square = tuple[int, int]


@dataclass(frozen=True)
class Task:
    """A start and a flag, at least two steps apart."""

    start: Square
    flag: Square

    @property
    def id(self) -> str:
        return "{}{}-{}{}".format(*self.start, *self.flag)


def _tasks() -> tuple[list[Task], list[Task]]:
    squares = [(x, y) for x in range(SIZE) for y in range(SIZE)]
    tasks = [Task(a, b) for a in squares for b in squares if abs(a[0] - b[0]) + abs(a[1] - b[1]) >= 2]
    random.Random(1).shuffle(tasks)
    return tasks[128:], tasks[:128]


TRAIN, HELD_OUT = _tasks()


@dataclass
class World:
    """One run of a task. The seed says where the ice is slippery."""

    task: Task
    seed: str
    turns: int = 0
    at: Square = field(init=False)

    def __post_init__(self) -> None:
        self.at = self.task.start
        self._ice = random.Random(f"{self.seed}/ice")

    def distance(self) -> tuple[int, int]:
        """How far the flag is: steps to the right, steps up; negative: left, down."""
        return self.task.flag[0] - self.at[0], self.task.flag[1] - self.at[1]

    def look(self) -> str:
        """What the walker sees: "flag 2 right 1 down"."""
        x, y = self.distance()
        sideways = f" {abs(x)} {'right' if x > 0 else 'left'}" if x else ""
        upward = f" {abs(y)} {'up' if y > 0 else 'down'}" if y else ""
        return "flag" + sideways + upward

    def act(self, reply: str) -> str:
        """Take a turn; returns what the walker sees then."""
        self.turns += 1
        if not 1 <= len(reply) <= MOST_STEPS or any(step not in STEPS for step in reply):
            return "what? " + self.look()
        slips = self._ice.random() < SLIP
        x, y = self.at
        for step in reply[:-1] if slips else reply:
            dx, dy = STEPS[step]
            x, y = min(max(x + dx, 0), SIZE - 1), min(max(y + dy, 0), SIZE - 1)
        self.at = (x, y)
        return self.look()

    @property
    def reached(self) -> bool:
        return self.at == self.task.flag

    @property
    def over(self) -> bool:
        return self.reached or self.turns >= TURNS

    @property
    def reward(self) -> float:
        return 1.0 if self.reached else 0.0
