"""The whole of it: sample, store, lease, train, evaluate, check.

    python run.py --binary bin/icecore

Exit status 0: the reward rose and every check held. `make e2e` runs it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import icecore
import pyarrow.compute as pc
import torch

import checks
import policy
import report
import services
import warmstart
from capture import Capture
from checks import Disagreement
from learner import Learner
from rollouts import Rollouts

ROUNDS = 20  # of sampling
GROUPS = 8  # in a batch
BATCHES = 2  # of a round: the second is trained by weights that did not sample it
MAX_STALENESS = BATCHES - 1
EVALUATE_EVERY = 5  # rounds
LATE_ROUND = 2  # one group of this round is rewarded when it is too old
RETRIED_STEP = 3  # the learner asks twice for this batch
FOLLOWED_STEP = 2 * (ROUNDS // 4) + 1  # a response of this batch is followed all the way

# What a run must reach on held-out tasks: mean reward before and after.
BEFORE, AFTER = 0.35, 0.8


class Run:
    def __init__(self, server: str, engine: str, weights: Path, ledger: Path, client: icecore.Client, writer: icecore.Writer, seed: int) -> None:
        self.server, self.engine, self.client, self.seed = server, engine, client, seed
        self.weights, self.ledger = weights, checks.Ledger(ledger)
        self.capture = Capture(engine, writer)
        self.capture.start()
        self.rollouts = Rollouts(self.capture, writer, seed)
        self.trained: list[float] = []  # mean reward of each batch
        self.held_out: dict[int, float] = {}  # by policy version
        self.delivered: list[str] = []  # rollouts, in the order in which they came
        self.spans = self.tokens = 0  # trained
        self.kept: list[icecore.Row] = []  # rows of the batch of which a response is followed

    def all(self, learner: Learner) -> None:
        self.evaluate(learner.version)
        print(report.HEAD)
        for number in range(1, ROUNDS + 1):
            if number == LATE_ROUND:
                reward_late = self.rollouts.late_group(learner.version)
            self.rollouts.groups(learner.version, BATCHES * GROUPS)
            if number == LATE_ROUND + 1:
                reward_late()
            for _ in range(BATCHES):
                self.step(learner)
            self.move_engine(learner.version)
            if number % EVALUATE_EVERY == 0:
                self.evaluate(learner.version)

    def close(self) -> None:
        self.capture.close()
        self.ledger.close()

    def lease(self, learner: Learner) -> icecore.Batch:
        batch = self.client.lease(
            "learner", key=f"step-{learner.version}", groups=GROUPS, wait=60, where={"split": "train"},
            policy_version=learner.version, max_staleness=MAX_STALENESS, on_failed="exclude",
            estimator="grpo", row_weight="rollout_mean", seed=self.seed)
        if not batch:
            raise Disagreement(f"no batch for step {learner.version}: {self.client.last_wait}")
        return batch

    def step(self, learner: Learner) -> None:
        """One batch, from lease to acknowledgement."""
        version = learner.version
        if version == RETRIED_STEP:  # as a learner does that died before it trained
            first = self.lease(learner)
            first.detach()
        with self.lease(learner) as batch:
            if version == RETRIED_STEP and not batch.table.equals(first.table):
                raise Disagreement(f"step {version}: the same key gave other rows")
            self.spans += checks.rows_agree(batch.rows(), self.ledger.read())
            done = learner.train(batch)
        self.tokens += batch.meta["trained_tokens"]
        staleness = version - pc.min(batch.table["policy_version_min"]).as_py()
        if staleness == 0 and done.gap > checks.TOLERANCE:
            raise Disagreement(f"step {version}: the weights that sampled the batch give other log-probs, {done.gap:.2g} nats apart")
        if version == FOLLOWED_STEP:
            self.kept = batch.rows()
        rewards = dict(zip(*(batch.table[column].to_pylist() for column in ("rollout_id", "reward"))))
        self.delivered += rewards
        self.trained.append(sum(rewards.values()) / len(rewards))
        print(report.line(version, self.trained[-1], batch.meta, self.boundaries(batch), staleness, done.clipped, done.gap), flush=True)

    def boundaries(self, batch: icecore.Batch) -> dict[str, int]:
        """How the calls of a batch's rollouts begin, by kind of boundary."""
        found = self.client.sql(
            "SELECT kind, count(*) AS calls FROM boundaries WHERE merge_policy = 'strict_tree' "
            "AND rollout_id IN (SELECT unnest(string_split($1, ' '))) GROUP BY kind", [" ".join(set(batch.table["rollout_id"].to_pylist()))])
        return {row["kind"]: row["calls"] for row in found}

    def move_engine(self, version: int) -> None:
        checks.post(f"{self.engine}/policy", {"policy_version": version})

    def evaluate(self, version: int) -> None:
        """Walks the held-out tasks, and asks icecore how it went."""
        walks = self.rollouts.held_out(version)
        self.until_visible(walks[-1])
        found = next(iter(self.client.sql(
            "SELECT count(*) AS rollouts, count(*) FILTER (status IS NOT NULL) AS finished, sum(coalesce(reward, 0)) / count(*) AS reward "
            "FROM rollouts WHERE split = 'eval' AND policy_version = $1", [version])))
        if (found["rollouts"], found["finished"]) != (len(walks), len(walks)):
            raise Disagreement(f"evaluation of version {version}: {len(walks)} rollouts were made, SQL has {found}")
        self.held_out[version] = found["reward"]
        print(f"held-out tasks, version {version}: mean reward {found['reward']:.3f} of {len(walks)} walks", flush=True)

    def until_visible(self, rollout_id: str) -> None:
        """Waits until SQL sees all that is stored: a write, and with it everything before it."""
        self.client.put_rollout(rollout_id, metadata={"looked_at": time.time()}, ack="queryable")

    def check(self) -> None:
        """Everything that must hold at the end."""
        self.until_visible(self.delivered[-1])
        row = max(self.kept, key=lambda row: (len(row.spans), row.id))
        print("\n".join(["", *checks.follow(row, self.server, self.ledger, self.weights)]))
        print(f"{self.spans} trained spans of all batches: ids, context, mask, versions and log-probs are those of the engine's ledger")
        print("\n".join(checks.accounts(self.client, self.delivered, ROUNDS * BATCHES, GROUPS)))
        print("\n".join(checks.mismatch(self.client, self.tokens)))


def train_and_check(binary: Path, seed: int, directory: Path) -> Run:
    """A whole run in a directory. Raises Disagreement."""
    weights, ledger = directory / "weights", directory / "ledger.jsonl"
    weights.mkdir()
    began = time.monotonic()
    model = warmstart.train(seed)
    print(f"policy of {sum(p.numel() for p in model.parameters())} parameters, warm start {time.monotonic() - began:.0f} s", flush=True)
    learner = Learner(model, weights)
    with (
        services.icecore_server(binary, directory) as server,
        services.engine(weights, ledger, learner.version) as engine,
        icecore.Client(server) as client,
        client.writer() as writer,
        closing(Run(server, engine, weights, ledger, client, writer, seed)) as run,
    ):
        run.all(learner)
        run.check()
    return run


def main() -> int:
    arguments = argparse.ArgumentParser(description="Train a tiny policy with GRPO through icecore.")
    arguments.add_argument("--binary", type=Path, required=True, help="the icecore binary")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--curve", type=Path, help="write the rewards as SVG into this file")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that processes and files are cleaned up
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="grpo_tiny-") as name:
            run = train_and_check(options.binary, options.seed, Path(name))
    except (Disagreement, icecore.IcecoreError) as e:
        print(f"\nFAILED: {type(e).__name__}: {e}")
        return 1
    if options.curve:
        report.svg(options.curve, run.trained, run.held_out)
    last = ROUNDS * BATCHES
    before, after = run.held_out[0], run.held_out[last]
    rose = before < BEFORE and after > AFTER
    print(f"\nmean reward on held-out tasks: {before:.3f} before, {after:.3f} after {last} steps; "
          f"below {BEFORE} and above {AFTER} is wanted. {time.monotonic() - began:.0f} s")
    print("OK: the reward rose and every check held" if rose else "FAILED: the reward did not rise as it should")
    return 0 if rose else 1


if __name__ == "__main__":
    sys.exit(main())
