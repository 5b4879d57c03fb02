"""Prompts sent as what is new in them.

An agent's call repeats its history, so a prompt usually begins with the prompt and
the response of an earlier call of the same rollout."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from .encode import Tokens, Trace

# Ids that a prefix must save: naming trace and hash takes about 200 bytes.
WORTH = 64
# Calls of a rollout that are compared: forks (sub-agents, retries) go back a few.
CALLS = 4
# Bytes of ids that are remembered of all rollouts; the one used longest ago goes.
REMEMBERED = 64 << 20


class Prefixes:
    """Remembers what was sent of each rollout."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._bytes = 0
        self._rollouts: OrderedDict[str, list[tuple[str, Tokens]]] = OrderedDict()

    def shorten(self, trace: Trace) -> None:
        """Takes the longest prefix that the trace shares with one sent before."""
        prompt, sequence = trace.prompt, trace.sequence
        if prompt is None or sequence is None or not isinstance(trace.id, str):
            return
        trace_id, length = "", WORTH - 1
        for earlier, ids in self._rollouts.get(trace.rollout, []):
            if earlier != trace.id and (n := shared(prompt, ids)) > length:
                trace_id, length = earlier, n
        if trace_id:
            trace.shorten(trace_id, length)
        self._remember(trace.rollout, trace.id, sequence)

    def _remember(self, rollout: str, trace_id: str, sequence: Tokens) -> None:
        calls = self._rollouts.setdefault(rollout, [])
        self._rollouts.move_to_end(rollout)
        calls.append((trace_id, sequence))
        self._bytes += sequence.nbytes
        while len(calls) > CALLS:
            self._bytes -= calls.pop(0)[1].nbytes
        while self._bytes > self._remembered and self._rollouts:
            self.forget(next(iter(self._rollouts)))

    def forget(self, rollout: str) -> None:
        """The rollout is finished."""
        for _, ids in self._rollouts.pop(rollout, []):
            self._bytes -= ids.nbytes


def shared(a: Tokens, b: Tokens) -> int:
    """How many ids both begin with."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(np.argmax(differs)) if n else 0
    return first if n and differs[first] else n
