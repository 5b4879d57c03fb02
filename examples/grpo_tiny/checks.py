"""The checks: is what was trained on what the engine sampled?

The witness is the engine's own ledger, which went past capture and icecore.
Whatever does not agree raises Disagreement, and the run has failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import torch

import policy

# Largest difference between two ways to compute one log-prob in float32, in nats:
# token by token when sampled, all at once when trained.
TOLERANCE = 1e-4


class Disagreement(Exception):
    """Two stations of a response's way say different things."""


@dataclass(frozen=True)
class Answered:
    """One answer, as the engine wrote it down."""

    version: int
    prompt: list[int]
    response: list[int]
    logprobs: list[float]


class Ledger(dict[str, Answered]):
    """The engine's ledger, by request id; the capture made that the trace's id."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._lines = path.open()

    def read(self) -> Ledger:
        """Reads what the engine has written since the last time."""
        for line in self._lines:
            a = json.loads(line)
            self[a["request_id"]] = Answered(a["policy_version"], a["prompt_token_ids"], a["token_ids"], a["logprobs"])
        return self

    def close(self) -> None:
        self._lines.close()


def rows_agree(rows: Iterable[Any], ledger: Ledger) -> int:
    """Every span of every row against the ledger: ids, log-probs to the bit, mask,
    context and version; returns how many trained spans there were."""
    spans = 0
    for row in rows:
        trained = np.zeros(len(row), bool)
        for span in row.spans:
            said = ledger[span.trace_id]
            at = slice(span.start, span.end)
            what = f"row {row.id}, span of {span.trace_id}"
            _same(what + ": version", said.version, span.policy_version)
            _same(what + ": ids", said.response, row.tokens[at].tolist())
            _same(what + ": context", said.prompt, row.tokens[: span.start].tolist())
            if span.trainable:
                _same(what + ": log-probs", _floats(said.logprobs), row.logprobs[at].tolist())
                trained[at] = True
                spans += 1
        _same(f"row {row.id}: mask", trained.tolist(), row.mask.tolist())
    return spans


def follow(row: Any, server: str, ledger: Ledger, weights: Path) -> list[str]:
    """One sampled response all the way: the last trained one of a row. Returns
    what was found, as lines to print."""
    span = [s for s in row.spans if s.trainable][-1]
    said = ledger[span.trace_id]
    lines = [f"response {span.trace_id}: {policy.decode(said.response)!r}, version {said.version}, behind {len(said.prompt)} tokens of context",
             f"  engine's ledger: ids {said.response}, log-probs {_short(said.logprobs)}"]

    stored = _get(f"{server}/v1/traces/{span.trace_id}")
    trace = stored.get("trace", stored)
    _same("stored trace: prompt", said.prompt, trace["prompt_token_ids"])
    _same("stored trace: ids", said.response, trace["response_token_ids"])
    _same("stored trace: log-probs", _floats(said.logprobs), _floats(trace["response_logprobs"]))
    _same("stored trace: version", said.version, trace["policy_version"])
    lines.append("  stored trace: prompt, ids, log-probs and version are those of the ledger")

    boundary = _get(f"{server}/v1/traces/{span.trace_id}/boundary")
    names = {check["name"] for check in boundary["checks"]}
    wanted = {"body.ids", "body.prompt_ids", "body.logprobs", "tape.ids", "merge.span", "row.ids", "row.mask", "row.logprobs", "row.context"}
    if not boundary["ok"] or not wanted <= names:
        wrong = [check["detail"] for check in boundary["checks"] if not check["ok"]]
        raise Disagreement(f"boundary check of {span.trace_id}: {wrong}; not checked: {sorted(wanted - names)}")
    lines.append(f"  boundary check: {len(names)} checks from the engine's body to the row agree")

    rows_agree([row], ledger)
    lines.append(f"  leased row {row.id}: span [{span.start}, {span.end}) of {len(row)}, mask and context agree, log-probs to the bit")

    gap = _gap(said, weights, said.version)
    if not gap < TOLERANCE:
        raise Disagreement(f"log-probs of {span.trace_id}: with the weights of version {said.version} they are {gap:.2g} nats apart")
    other = max(_gap(said, weights, v) for v in (0, said.version + 1))
    if not other > 10 * TOLERANCE:
        raise Disagreement(f"log-probs of {span.trace_id}: other versions give them as well ({other:.2g} nats apart), so they prove nothing")
    lines.append(f"  weights of version {said.version}: give these log-probs to {gap:.1e} nats (those of other versions: to {other:.2f})")
    return lines


def accounts(client: Any, delivered: list[str], leases: int, groups: int) -> list[str]:
    """What the consumer says against what was trained: each rollout once, none left out."""
    consumer = client.consumer("learner")
    acknowledged = consumer["acknowledged"]
    _same("acknowledged leases", leases, acknowledged["leases"])
    _same("acknowledged groups", leases * groups, acknowledged["groups"])
    _same("acknowledged rollouts", len(delivered), acknowledged["rollouts"])
    _same("rollouts delivered twice", 0, len(delivered) - len(set(delivered)))
    _same("groups skipped as stale", 1, consumer["skipped"]["stale"])
    _same("open leases", [], consumer["open_leases"])
    ended = client.sql("SELECT rollout_id, status FROM rollouts WHERE split = 'train' AND group_id NOT LIKE '%-late%'").arrow()
    ended = dict(zip(*(column.to_pylist() for column in ended.columns)))
    wanted = {rollout for rollout, status in ended.items() if status == "succeeded"}
    _same("rollouts that ended well and were not trained", set(), wanted - set(delivered))
    _same("rollouts that were trained and did not end well", set(), set(delivered) - wanted)
    return [f"{leases} leases of {groups} groups acknowledged: {len(delivered)} rollouts trained once each; "
            f"{len(ended) - len(wanted)} died and 1 late group were left out"]


def mismatch(client: Any, tokens: int) -> list[str]:
    """What icecore makes of the learner's log-probs that were sent back: where the
    weights that sampled are those that trained there is no gap, elsewhere there is."""
    said = client.analytics("mismatch", by=["learner_version", "policy_version"], worst=0, limit=1000)
    _same("tokens that learner and sampler both scored", tokens, said["total"]["tokens"]["compared"])
    parts: dict[bool, list[Any]] = {True: [], False: []}
    for row in said["rows"]:
        parts[row["keys"]["learner_version"] == row["keys"]["policy_version"]].append(row)
    own, older = parts[True], parts[False]
    gap, k3 = max(row["abs"]["max"] for row in own), max(row["k3"] for row in own)
    if not (gap < TOLERANCE and k3 < TOLERANCE**2):
        raise Disagreement(f"mismatch at staleness 0: k3 {k3:.2g}, largest gap {gap:.2g} nats")
    drift = min(row["k3"] for row in older)
    if not drift > 10 * TOLERANCE**2:
        raise Disagreement(f"mismatch at staleness 1: k3 {drift:.2g}, as if the weights had not moved")
    return [f"mismatch of {tokens} tokens as icecore computes it: k3 at most {k3:.1e} in {len(own)} batches of the learner's own version, "
            f"{drift:.1e} and more in {len(older)} of the version before"]


def _gap(said: Answered, weights: Path, version: int) -> float:
    """How far the ledger's log-probs are from those of a version's weights, nats."""
    model = policy.load(weights, version)
    with torch.no_grad():
        logprobs = model.token_logprobs(torch.tensor([said.prompt + said.response]))[0, len(said.prompt) :]
    return float((logprobs - torch.tensor(said.logprobs)).abs().max())


def _same(what: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise Disagreement(f"{what}: {expected} was expected, {got} is there")


def _floats(values: list[float]) -> list[float]:
    """As float32, in which log-probs are stored and delivered."""
    return [float(v) for v in np.asarray(values, np.float32)]


def _short(values: list[float]) -> str:
    return "[" + ", ".join(f"{v:.4f}" for v in values) + "]"


def _get(url: str) -> Any:
    with urlopen(url, timeout=60) as answer:
        return json.load(answer)


def post(url: str, body: Any) -> Any:
    """POST of JSON."""
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)
