"""Rows: views of delivered trajectories as numpy arrays.

A Row reads from the pyarrow Table that was delivered and keeps it alive. Ids and
mask are the Arrow memory itself; log-probs too, unless some are null: then they
are copied once per record batch, with NaN for null. All arrays are read-only.
Chunks are never joined: a list column's offsets are int32, and two leases
together may hold more ids than that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._chunk import Chunk
from .alignment import to_next, to_response
from .errors import DataError
from .spans import Span

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
V = TypeVar("V")


class _Column(Generic[V]):
    """An attribute of Row that is read from a column of the table."""

    def __init__(self, name: str, *default: V) -> None:
        self.name = name
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, row: None, owner: type) -> _Column[V]: ...
    @overload
    def __get__(self, row: Row, owner: type) -> V: ...
    def __get__(self, row: Row | None, owner: type) -> _Column[V] | V:
        if row is None:
            return self
        if self.attribute in row._changed:
            changed: V = row._changed[self.attribute]
            return changed
        if self.default and self.name not in row._chunk.names:
            return self.default[0]
        value: V = row._chunk.scalar(self.name, row._at)
        return value


class Response(NamedTuple):
    """A row cut at its first trained position p: prompt [p], the rest R-aligned [L - p]."""

    prompt: Ints
    response: Ints
    mask: Bools
    logprobs: Floats


class Shifted(NamedTuple):
    """A row on the axis of a loss: inputs x[:-1], and N-aligned [L - 1] what belongs to x[1:]."""

    inputs: Ints
    targets: Ints
    mask: Bools
    logprobs: Floats
    advantages: Floats


class Row:
    """One delivered trajectory. Arrays are token-aligned (T) and read-only."""

    __slots__ = ("_chunk", "_at", "_changed", "index")

    #: Place of the row in its table.
    index: int

    id = _Column[str]("trajectory_id")
    rollout_id = _Column[str]("rollout_id")
    group_id = _Column["str | None"]("group_id")
    task_id = _Column["str | None"]("task_id")
    split = _Column["str | None"]("split")
    harness = _Column["str | None"]("harness")
    model = _Column["str | None"]("model")
    merge_policy = _Column[str]("merge_policy")
    #: The rollout's status: succeeded, failed, timeout, error, cancelled; None: not finished.
    status = _Column["str | None"]("rollout_status")
    #: p, the first trained position; the row's length when nothing is trained.
    p = _Column[int]("prompt_length")
    trained_tokens = _Column[int]("trained_tokens")
    policy_version_min = _Column["int | None"]("policy_version_min")
    policy_version_max = _Column["int | None"]("policy_version_max")
    #: The rollout's reward; None: never given one.
    reward = _Column["float | None"]("reward")
    group_size = _Column["int | None"]("group_size")
    sample_index = _Column["int | None"]("sample_index")
    complete = _Column[bool]("complete")
    rollout_trajectories = _Column[int]("rollout_trajectories")
    rollout_trained_tokens = _Column[int]("rollout_trained_tokens")
    row_in_rollout = _Column[int]("row_in_rollout")
    is_last = _Column[bool]("is_last")
    logprobs_complete = _Column[bool]("logprobs_complete")
    truncated = _Column[bool]("truncated")
    history_rewritten = _Column[bool]("history_rewritten")
    #: Dense over the whole lease, also when only a shard of it was delivered.
    group_index = _Column[int]("group_index")
    rollout_index = _Column[int]("rollout_index")
    group_finished = _Column[int]("group_finished")
    group_scored = _Column[int]("group_scored")
    #: A of the rollout, not yet times weight; None: no reward, or no estimator was asked for.
    advantage = _Column["float | None"]("advantage", None)
    zero_advantage = _Column[bool]("zero_advantage", False)
    weight = _Column[float]("weight", 1.0)
    shard = _Column[int]("shard")
    microbatch = _Column["int | None"]("microbatch", None)
    shared_prefix_row = _Column["int | None"]("shared_prefix_row", None)
    shared_prefix_len = _Column[int]("shared_prefix_len", 0)

    def __init__(self, chunk: Chunk, at: int, index: int, changed: Mapping[str, Any] | None = None) -> None:
        self._chunk = chunk
        self._at = at
        self._changed: Mapping[str, Any] = changed or {}
        self.index = index

    @property
    def tokens(self) -> Ints:
        """Token ids, int32 [L]."""
        return self._array("tokens", "token_ids")

    @property
    def mask(self) -> Bools:
        """Which tokens are trained, bool [L]."""
        return self._array("mask", "loss_mask")

    @property
    def logprobs(self) -> Floats:
        """Behaviour log-probs (natural log), float32 [L]; NaN: not sampled, or not known."""
        return self._array("logprobs", "logprobs")

    def _array(self, attribute: str, column: str) -> Array:
        if attribute in self._changed:
            changed: npt.NDArray[Any] = self._changed[attribute]
            return changed
        return self._chunk.array(column, self._at)

    @property
    def spans(self) -> list[Span]:
        """Which trace sampled which positions, in order of positions."""
        if "spans" in self._changed:
            return list(self._changed["spans"])
        return [Span.of(s) for s in self._chunk.structs("spans", self._at)]

    @property
    def noop(self) -> bool:
        """The row was made to fill up a batch: nothing of it is trained or counted."""
        return bool(self._changed.get("noop", False))

    @property
    def scaled_advantage(self) -> float | None:
        """A times weight; None as advantage is."""
        return None if self.advantage is None else self.advantage * self.weight

    @property
    def trained_mask(self) -> Bools:
        """The mask, all False when the rollout was never scored.

        A missing reward is no reward of 0: such a row has no advantage and is not
        trained. A lease that asked for no estimator (estimator "none") has no
        advantages at all, and its masks are left alone.
        """
        if self.advantage is None and self.estimator != "none":
            mask = np.zeros(len(self), np.bool_)
            mask.flags.writeable = False
            return mask
        return self.mask

    @property
    def token_advantages(self) -> Floats:
        """A times weight where trained_mask is True, else 0; float32 [L]. NaN where estimator is "none"."""
        scaled = self.scaled_advantage
        out: Floats = np.zeros(len(self), np.float32)
        np.copyto(out, np.nan if scaled is None else scaled, where=self.trained_mask)
        out.flags.writeable = False
        return out

    @property
    def estimator(self) -> str:
        """The estimator of the lease; "none" for an export."""
        return self._chunk.meta.get("estimator", "none")

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"Row({self.id!r}, {len(self)} tokens, {self.trained_tokens} trained, rollout {self.rollout_id!r})"

    def replace(self, **changed: Any) -> Row:
        """The same row with other values of these attributes. The table is not touched."""
        for name, value in changed.items():
            if isinstance(value, np.ndarray):
                changed[name] = value.view()
                changed[name].flags.writeable = False
        return Row(self._chunk, self._at, self.index, {**self._changed, **changed})

    def changed(self, name: str) -> bool:
        """Whether replace gave this attribute another value."""
        return name in self._changed

    def response(self) -> Response:
        """R alignment. Raises DataError when the first token is trained (p = 0)."""
        p = self.p
        try:
            return Response(self.tokens[:p], *(to_response(a, p) for a in (self.tokens, self.mask, self.logprobs)))
        except DataError as fault:
            raise DataError(f"row {self.id}: {fault}") from None

    def shifted(self) -> Shifted:
        """N alignment, with advantage times weight where trained, else 0.

        A row without a reward comes with an empty mask (see trained_mask). Raises
        DataError when the first token is trained: no logits score it.
        """
        if len(self) < 2 or self.mask[0]:
            raise DataError(f"row {self.id}: shift: the first of {len(self)} tokens cannot be a target")
        parts = (self.tokens, self.trained_mask, self.logprobs, self.token_advantages)
        return Shifted(self.tokens[:-1], *(to_next(a) for a in parts))

    def per_span(self, name: str, fill: Any) -> Array:
        """A field of the spans along the tokens, [L]; fill outside spans and where a span does not say.

        The dtype follows fill: float32 for a float, int64 for an int, bool, else object.
        """
        dtype = {bool: np.bool_, int: np.int64, float: np.float32}.get(type(fill), np.object_)
        out: Array = np.full(len(self), fill, dtype)
        for span in self.spans:
            value = getattr(span, name)
            if value is not None:
                out[span.start : span.end] = value
        return out

    def versions(self, fill: int = -1) -> Longs:
        """The policy version that sampled each token, int64 [L]; fill where none did or it is not known."""
        out: Longs = self.per_span("policy_version", fill)
        for span in self.spans:
            for at, version in span.policy_version_spans:
                out[span.start + at : span.end] = version
        return out


def rows_of(table: Any, meta: Mapping[str, str] | None = None) -> list[Row]:
    """The rows of a delivered (or exported) pyarrow Table, RecordBatch or list of those, without copying.

    meta is the lease's metadata, by default that of the table's schema; names
    with and without "icecore." are understood.
    """
    if meta is None:
        meta = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
    plain = {k.removeprefix("icecore."): str(v) for k, v in meta.items()}
    rows: list[Row] = []
    for batch in [table] if isinstance(table, pa.RecordBatch) else table.to_batches():
        chunk = Chunk(batch, plain)
        before = len(rows)
        rows += [Row(chunk, at, before + at) for at in range(batch.num_rows)]
    return rows


def groups_of(rows: Iterable[Row]) -> list[list[list[Row]]]:
    """Rows by group, then by rollout: groups, each a list of rollouts, each a list of rows.

    Groups and rollouts stand in the order in which they first appear. A rollout
    without a group_id is a group by itself.
    """
    groups: dict[Any, dict[str, list[Row]]] = {}
    for row in rows:
        group = row.group_id if row.group_id is not None else (row.rollout_id,)
        groups.setdefault(group, {}).setdefault(row.rollout_id, []).append(row)
    return [list(rollouts.values()) for rollouts in groups.values()]


def rollouts_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows of one rollout after the other's."""
    for group in groups_of(rows):
        yield from group


def rollout_reward(rows: Sequence[Row]) -> float | None:
    """The reward of a rollout, from all its rows. Raises DataError when they differ: none is picked, none summed."""
    rewards = {row.reward for row in rows}
    if len(rewards) != 1:
        raise DataError(f"reward of rollout {rows[0].rollout_id}: its {len(rows)} rows differ: {sorted(rewards, key=str)}")
    return rewards.pop()
