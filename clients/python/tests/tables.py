"""Delivered tables made of plain Python lists, in the exact schema of a lease.

    table = delivered([
        row([10, 11, 12, 13], [0, 0, 1, 1], rollout_id="r-1", reward=1.0, advantage=0.5),
        row([10, 11, 14], [0, 0, 1], rollout_id="r-2", reward=0.0, advantage=-0.5),
    ])

What a row does not say is worked out as the server does: spans from the runs of
its mask, counts per rollout, dense indices by first appearance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def _field(name: str, kind: Any, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable)


def _list(kind: Any, nullable: bool = False) -> Any:
    return pa.list_(pa.field("item", kind, nullable))


VERSION_SPANS = _list(pa.struct([_field("start", pa.int64()), _field("version", pa.int64())]))

SPAN = pa.struct(
    [
        _field("trace_id", pa.string()),
        _field("start", pa.int32()),
        _field("end", pa.int32()),
        _field("trainable", pa.bool_()),
        _field("policy_version", pa.int64(), True),
        _field("policy_version_spans", VERSION_SPANS, True),
        _field("temperature", pa.float64(), True),
        _field("top_p", pa.float64(), True),
        _field("top_k", pa.int64(), True),
        _field("logprobs_mode", pa.string()),
        _field("status", pa.string()),
        _field("finish_reason", pa.string(), True),
        _field("kind", pa.string()),
    ]
)

# trace.TrajectorySchema, then what a lease appends (trace.DeliverySchema).
SCHEMA = pa.schema(
    [
        _field("trajectory_id", pa.string()),
        _field("rollout_id", pa.string()),
        _field("group_id", pa.string(), True),
        _field("task_id", pa.string(), True),
        _field("split", pa.string(), True),
        _field("harness", DICTIONARY, True),
        _field("model", DICTIONARY, True),
        _field("merge_policy", DICTIONARY),
        _field("token_ids", _list(pa.int32())),
        _field("loss_mask", _list(pa.int8())),
        _field("logprobs", _list(pa.float32(), True)),
        _field("spans", _list(SPAN)),
        _field("prompt_length", pa.int32()),
        _field("trained_tokens", pa.int32()),
        _field("policy_version_min", pa.int64(), True),
        _field("policy_version_max", pa.int64(), True),
        _field("reward", pa.float64(), True),
        _field("group_size", pa.int64(), True),
        _field("sample_index", pa.int64(), True),
        _field("rollout_status", DICTIONARY, True),
        _field("complete", pa.bool_()),
        _field("rollout_trajectories", pa.int32()),
        _field("rollout_trained_tokens", pa.int64()),
        _field("row_in_rollout", pa.int32()),
        _field("is_last", pa.bool_()),
        _field("logprobs_complete", pa.bool_()),
        _field("truncated", pa.bool_()),
        _field("history_rewritten", pa.bool_()),
        _field("group_index", pa.int32()),
        _field("rollout_index", pa.int32()),
        _field("group_finished", pa.int32()),
        _field("group_scored", pa.int32()),
        _field("advantage", pa.float32(), True),
        _field("zero_advantage", pa.bool_()),
        _field("weight", pa.float32()),
        _field("shard", pa.int32()),
        _field("microbatch", pa.int32(), True),
        _field("shared_prefix_row", pa.int32(), True),
        _field("shared_prefix_len", pa.int32()),
    ]
)

SPAN_DEFAULTS: dict[str, Any] = {
    "policy_version": None,
    "policy_version_spans": None,
    "temperature": 1.0,
    "top_p": None,
    "top_k": None,
    "logprobs_mode": "raw",
    "status": "ok",
    "finish_reason": "stop",
    "kind": "agent",
}


def span(start: int, end: int, trace_id: str = "", trainable: bool = True, **fields: Any) -> dict[str, Any]:
    """One span as its struct; policy_version_spans as [(start, version), ...]."""
    unknown = fields.keys() - SPAN_DEFAULTS.keys()
    if unknown:
        raise KeyError(f"span has no field {sorted(unknown)}")
    made = {"trace_id": trace_id or f"t-{start}", "start": start, "end": end, "trainable": trainable}
    made |= SPAN_DEFAULTS | fields
    if made["policy_version_spans"] is not None:
        made["policy_version_spans"] = [{"start": s, "version": v} for s, v in made["policy_version_spans"]]
    return made


def row(
    token_ids: Sequence[int],
    loss_mask: Sequence[int],
    logprobs: Sequence[float | None] | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """One row. Without logprobs: -0.5 at every trained token, null elsewhere.

    Span fields that hold for the whole row may be given here too: temperature,
    top_p, top_k, logprobs_mode, policy_version, kind, finish_reason.
    """
    of_spans = {k: columns.pop(k) for k in list(columns) if k in SPAN_DEFAULTS and k not in SCHEMA.names}
    unknown = columns.keys() - set(SCHEMA.names)
    if unknown:
        raise KeyError(f"row has no column {sorted(unknown)}")
    mask = [int(m) for m in loss_mask]
    if logprobs is None:
        logprobs = [-0.5 if m else None for m in mask]
    made: dict[str, Any] = {"token_ids": list(token_ids), "loss_mask": mask, "logprobs": list(logprobs)}
    made["spans"] = [span(start, end, **of_spans) for start, end in runs(mask)]
    return made | columns


def runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """The half-open ranges where mask is 1."""
    edges = [i for i in range(len(mask) + 1) if (mask[i - 1] if i else 0) != (mask[i] if i < len(mask) else 0)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def delivered(rows: Iterable[Mapping[str, Any]], schema: Any = SCHEMA, **meta: Any) -> Any:
    """A pyarrow Table of these rows; meta becomes icecore.* schema metadata."""
    full = [_defaults(i, dict(r)) for i, r in enumerate(rows)]
    _counts(full)
    columns = [pa.array([r[f.name] for r in full], f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema.with_metadata(metadata(full, **meta)))


def metadata(full: Sequence[Mapping[str, Any]], **meta: Any) -> dict[str, str]:
    """Schema metadata of a lease that delivers these whole rows."""
    base: dict[str, Any] = {
        "lease_id": "lease-1",
        "key": "key-1",
        "consumer": "learner",
        "shards": 1,
        "shard": "",
        "schema_version": "1",
        "merge_policy": "strict_tree",
        "estimator": "grpo",
        "sigma": "sample",
        "epsilon": "1e-06",
        "row_weight": "none",
        "policy_version_now": "",
        "microbatches": len({r["microbatch"] for r in full} - {None}),
        "rows": len(full),
        "groups": len({r["group_index"] for r in full}),
        "rollouts": len({r["rollout_index"] for r in full}),
        "tokens": sum(len(r["token_ids"]) for r in full),
        "trained_tokens": sum(r["trained_tokens"] for r in full),
        "max_row_tokens": max((len(r["token_ids"]) for r in full), default=0),
    }
    for name in ("rows", "groups", "rollouts", "tokens", "trained_tokens"):
        base["lease_" + name] = base[name]
    return {f"icecore.{name}": str(value) for name, value in (base | meta).items()}


def _defaults(index: int, r: dict[str, Any]) -> dict[str, Any]:
    mask, spans = r["loss_mask"], r["spans"]
    versions = [s["policy_version"] for s in spans if s["policy_version"] is not None]
    versions += [v["version"] for s in spans for v in s["policy_version_spans"] or []]
    known = [p is not None for p, m in zip(r["logprobs"], mask, strict=False) if m]
    base: dict[str, Any] = {
        "trajectory_id": f"tr_{index}",
        "rollout_id": f"r-{index}",
        "group_id": "g-0",
        "task_id": "task",
        "split": "train",
        "harness": "harness",
        "model": "model",
        "merge_policy": "strict_tree",
        "prompt_length": mask.index(1) if 1 in mask else len(mask),
        "trained_tokens": sum(mask),
        "policy_version_min": min(versions, default=None),
        "policy_version_max": max(versions, default=None),
        "reward": None,
        "group_size": None,
        "sample_index": None,
        "rollout_status": "succeeded",
        "complete": True,
        "logprobs_complete": all(known),
        "truncated": bool(spans) and spans[-1]["finish_reason"] == "length",
        "history_rewritten": False,
        "advantage": None,
        "zero_advantage": False,
        "weight": 1.0,
        "shard": 0,
        "microbatch": None,
        "shared_prefix_row": None,
        "shared_prefix_len": 0,
    }
    return base | r


def _counts(full: list[dict[str, Any]]) -> None:
    """Fills in what is counted over the rows of a rollout and of a group."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    rollouts: dict[str, list[dict[str, Any]]] = {}
    for r in full:
        groups.setdefault(r["group_id"] if r["group_id"] is not None else ("alone", r["rollout_id"]), []).append(r)
        rollouts.setdefault(r["rollout_id"], []).append(r)
    for index, rows in enumerate(rollouts.values()):
        for at, r in enumerate(rows):
            r.setdefault("rollout_index", index)
            r.setdefault("row_in_rollout", at)
            r.setdefault("is_last", at == len(rows) - 1)
            r.setdefault("rollout_trajectories", len(rows))
            r.setdefault("rollout_trained_tokens", sum(x["trained_tokens"] for x in rows))
    for index, rows in enumerate(groups.values()):
        finished = len({r["rollout_id"] for r in rows})
        scored = len({r["rollout_id"] for r in rows if r["reward"] is not None})
        for r in rows:
            r.setdefault("group_index", index)
            r.setdefault("group_finished", finished)
            r.setdefault("group_scored", scored)
