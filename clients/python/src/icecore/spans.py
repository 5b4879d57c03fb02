"""Spans: which trace sampled which positions of a row, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple


class VersionSpan(NamedTuple):
    """From position start of its span on (0 is the span's first), tokens are of this policy version."""

    start: int
    version: int


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range [start, end) of a row's positions that one trace sampled."""

    trace_id: str
    start: int
    end: int
    trainable: bool = True
    #: Of the weights at dispatch; None: not known. policy_version_spans refines it.
    policy_version: int | None = None
    policy_version_spans: tuple[VersionSpan, ...] = ()
    #: As the request asked for; None: it did not say.
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    #: raw (of the model's own distribution), processed (of the one sampled from), or unknown.
    logprobs_mode: str = "unknown"
    #: ok, aborted, client_gone or upstream_error.
    status: str = "ok"
    finish_reason: str | None = None
    #: agent, or auxiliary (titles, compaction and the like).
    kind: str = "agent"

    @classmethod
    def of(cls, struct: Mapping[str, Any]) -> Span:
        """A span from its Arrow struct; fields that this version does not know are left out."""
        known = {k: v for k, v in struct.items() if k in _NAMES}
        parts = known.get("policy_version_spans") or ()
        known["policy_version_spans"] = tuple(VersionSpan(v["start"], v["version"]) for v in parts)
        return cls(**known)


_NAMES = frozenset(f.name for f in fields(Span))
