"""slime: a rollout function that gives it leased groups instead of generating.

    --rollout-function-path icecore.adapters.slime.generate_rollout
    --disable-rewards-normalization          # the reward that slime gets is our advantage
    --custom-config-path icecore.yaml        # icecore_url, icecore_consumer, …

Options are attributes of slime's args (a YAML file at --custom-config-path sets
them): see `Options`. miles takes the same: icecore.adapters.miles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from icecore.errors import DataError

from .feed import Feed, client_for
from .rows import Comparable, Missing, Ready, Score, groups, identity, ready, reward_of


@dataclass(frozen=True)
class Options:
    """What args.icecore_<name> may say.

    url, api_key: of the server; default ICECORE_URL, ICECORE_API_KEY. consumer: the
    learner's name. score: "advantage", or "reward" to let slime normalise by itself.
    missing, comparable: as in icecore.adapters.rows.ready. lease: more fields of
    the lease. lag: batches that slime may hold when it asks again: 1 when it trains
    in between, 2 when it asks one ahead (train_async.py); None: 1 with --colocate,
    else 2. max_staleness: leases name slime's rollout_id plus version_offset as the
    policy version, and bound staleness by this; None: neither. version_offset: the
    policy version of the traces that were sampled by slime's weights at rollout_id 0.
    """

    url: str | None = None
    api_key: str | None = None
    consumer: str = "slime"
    score: Score = "advantage"
    missing: Missing = "raise"
    comparable: Comparable = "require"
    lease: Mapping[str, Any] = field(default_factory=dict)
    lag: int | None = None
    max_staleness: int | None = None
    version_offset: int = 0

    @classmethod
    def of(cls, args: Any, **defaults: Any) -> Options:
        """The options that args name."""
        said = {f.name: getattr(args, f"icecore_{f.name}") for f in fields(cls) if hasattr(args, f"icecore_{f.name}")}
        return cls(**{**defaults, **said})


@dataclass(frozen=True)
class Types:
    """The trainer's own classes, and how it differs.

    versions: Sample.weight_versions takes text. by_position: it normalises rewards by
    their place in the batch, not by rollout.
    """

    sample: Any
    output: Any
    versions: bool
    by_position: bool


_feeds: dict[tuple[str | None, str], Feed] = {}


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """slime's rollout function: args.rollout_batch_size groups, as RolloutFnTrainOutput.

    rollout_id is slime's number of the call. Waits until the groups are there. The
    batch is acknowledged when a later call proves its use (Options.lag).
    """
    from slime.rollout.base_types import RolloutFnTrainOutput
    from slime.utils.types import Sample

    types = Types(Sample, RolloutFnTrainOutput, versions=True, by_position=True)
    return rollout(args, rollout_id, evaluation, Options.of(args), types)


def rollout(args: Any, rollout_id: int, evaluation: bool, options: Options, types: Types) -> Any:
    """The rollout function of slime and miles, given their classes."""
    if evaluation:
        raise DataError(
            "generate rollouts: icecore delivers training data; set --eval-function-path to the "
            "trainer's own rollout function, or leave --eval-interval out"
        )
    _settings(args, options)
    feed = feed_of(args, options)
    asked: dict[str, Any] = {"groups": args.rollout_batch_size}
    if options.max_staleness is not None:
        asked |= {"policy_version": rollout_id + options.version_offset, "max_staleness": options.max_staleness}
    batch = feed.next(**asked)
    with feed.using(batch):
        prepared = ready(
            batch,
            score=options.score,
            missing=options.missing,
            comparable=options.comparable,
            temperature=getattr(args, "rollout_temperature", None),
        )
        made = samples(prepared, args, options, types)
        return types.output(samples=made, metrics=metrics(prepared, made))


def feed_of(args: Any, options: Options) -> Feed:
    """The feed that this process leases from, made at its first use."""
    key = (options.url, options.consumer)
    if key not in _feeds:
        lag = options.lag or (1 if getattr(args, "colocate", False) else 2)
        _feeds[key] = Feed(client_for(options.url, options.api_key), options.consumer, lag=lag, **options.lease)
    return _feeds[key]


def finish() -> None:
    """Acknowledges everything that was given out: for a train.py that knows its end."""
    for feed in _feeds.values():
        feed.settle()


def samples(prepared: Sequence[Ready], args: Any, options: Options, types: Types) -> list[list[Any]]:
    """A list of Samples per group, then no-op groups up to a multiple of global_batch_size rollouts.

    The trainer takes global_batch_size rollouts per step and drops a remainder; a
    no-op (mask 0, reward 0) takes the place of a rollout that was not delivered, so
    that nothing real is dropped and the mean over rollouts keeps its denominator.
    """
    if options.score == "reward":
        _whole(prepared, args, types)
    rows = [[_sample(one, types) for rollout in group for one in rollout] for group in groups(prepared)]
    count = len({one.row.rollout_id for one in prepared})
    fixed = not getattr(args, "use_dynamic_global_batch_size", False)
    size = (getattr(args, "global_batch_size", None) or 1) if fixed else 1
    first_group = 1 + max((one.row.group_index for one in prepared), default=-1)
    first_rollout = 1 + max((one.row.rollout_index for one in prepared), default=-1)
    for extra in range(-count % size):
        rows.append([_noop(prepared[0], types, first_group + extra, first_rollout + extra)])
    return rows


def _sample(one: Ready, types: Types) -> Any:
    """Sample with tokens L, and mask and log-probs R."""
    row, status = one.row, types.sample.Status
    made = types.sample(
        group_index=row.group_index,
        index=row.rollout_index,
        tokens=one.tokens.tolist(),
        response_length=len(one) - one.p,
        reward=one.score,
        loss_mask=one.mask[one.p :].astype(int).tolist(),
        rollout_log_probs=one.logprobs[one.p :].tolist(),
        status=status.TRUNCATED if row.truncated else status.COMPLETED,
        metadata={"raw_reward": reward_of(one), "icecore": identity(one)},
    )
    if types.versions:
        made.weight_versions = [str(v) for v in sorted(set(row.versions().tolist())) if v >= 0]
    return _of_rollout(made, row.rollout_index, row.rollout_trajectories)


def _of_rollout(sample: Any, rollout_index: int, rows: int) -> Any:
    """rollout_id makes the loss count a rollout once, however many rows it has."""
    if not hasattr(sample, "rollout_id") and rows > 1:
        raise DataError(
            f"generate rollouts: rollout {rollout_index} has {rows} rows, and this trainer's Sample has no "
            "rollout_id, so it would count each row as a rollout; use a newer version of it"
        )
    sample.rollout_id = rollout_index
    return sample


def _noop(like: Ready, types: Types, group_index: int, rollout_index: int) -> Any:
    made = types.sample(
        group_index=group_index,
        index=rollout_index,
        tokens=like.tokens[: like.p + 1].tolist(),
        response_length=1,
        reward=0.0,
        loss_mask=[0],
        rollout_log_probs=[0.0],
        status=types.sample.Status.COMPLETED,
        metadata={"raw_reward": float("nan"), "icecore": None},
    )
    return _of_rollout(made, rollout_index, 1)


def metrics(prepared: Sequence[Ready], made: Sequence[Sequence[Any]]) -> dict[str, float]:
    """What the trainer should log of a batch: rollouts by what became of them."""
    of = {one.row.rollout_id: one for one in prepared}.values()
    rewards = [r for r in map(reward_of, of) if r == r]
    return {
        "icecore/rollouts": len(of),
        "icecore/unscored_rollouts": sum(not one.scored for one in of),
        "icecore/noop_rollouts": sum(s.metadata["icecore"] is None for group in made for s in group),
        "icecore/rows": len(prepared),
        "icecore/trained_tokens": sum(one.trained for one in prepared),
        **({"icecore/reward": sum(rewards) / len(rewards)} if rewards else {}),
    }


def _settings(args: Any, options: Options) -> None:
    """Refuses settings under which the trainer would make something else of our scores."""
    estimator = getattr(args, "advantage_estimator", "grpo")
    if estimator not in ("grpo", "gspo", "cispo"):
        raise DataError(
            f"generate rollouts: --advantage-estimator {estimator} does not take one score per rollout; "
            "use grpo, gspo or cispo"
        )
    if (weight := options.lease.get("row_weight") or "none") != "none":
        raise DataError(
            f"generate rollouts: the trainer's loss is a mean over rollouts already, and row_weight {weight} would weigh "
            'them twice; lease with row_weight "none"'
        )
    if options.score == "advantage" and getattr(args, "rewards_normalization", True):
        raise DataError(
            "generate rollouts: the trainer would normalise advantages as if they were rewards; set "
            '--disable-rewards-normalization, or icecore_score: "reward"'
        )
    if options.score == "advantage" and getattr(args, "normalize_advantages", False):
        raise DataError("generate rollouts: --normalize-advantages would change delivered advantages; leave it out")


def _whole(prepared: Sequence[Ready], args: Any, types: Types) -> None:
    """The trainer's own means need a reward of every rollout; by position, also whole groups of one row each."""
    wanted = args.n_samples_per_prompt
    for group in groups(prepared):
        short = types.by_position and (len(group) != wanted or any(len(rows) > 1 for rows in group))
        if short or not all(rows[0].scored for rows in group):
            first = group[0][0].row
            counts = [f"{len(rows)}" if rows[0].scored else "unscored" for rows in group]
            need = f"{wanted} rollouts of one row each, all scored" if types.by_position else "all rollouts scored"
            raise DataError(
                f"generate rollouts: group {first.group_id or first.rollout_id} has rollouts of {', '.join(counts)} "
                f'rows; with icecore_score "reward" the trainer takes the means itself and needs {need}; '
                'use icecore_score "advantage"'
            )
