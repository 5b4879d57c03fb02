"""What can go wrong, as exceptions. All of them are an IcecoreError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class IcecoreError(Exception):
    """The base of everything that this package raises on purpose."""


class ConnectionFailed(IcecoreError):
    """No answer could be had, although the request was sent again for as long as
    the client's ``retry_seconds`` allow. Writes may be sent again without harm."""


class ProblemError(IcecoreError):
    """The server answered with an error (RFC 9457).

    ``status``: HTTP status. ``code``: stable name of the fault, listed in
    docs/errors.md. ``field``: the parameter or field at fault, or None.
    ``detail``: the server's sentence. ``extra``: further members, such as
    ``offset`` or, for SQL, ``position``, ``line`` and ``column``.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        field: str | None = None,
        extra: dict[str, Any] | None = None,
        retry_after: str | None = None,
    ) -> None:
        where = f" (field {field})" if field else ""
        super().__init__(f"{status} {code}{where}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field
        self.extra = extra or {}
        self.retry_after = retry_after


class LeaseLost(ProblemError):
    """The lease is no longer this learner's: it expired and its groups were given
    to another, it was returned, or the consumer was moved (seek). What was trained
    on it is not acknowledged, and others may train on it again."""


class StreamError(IcecoreError):
    """An Arrow stream broke off, cannot be read, or does not hold what its headers
    promised. Nothing of it was handed over and nothing acknowledged. Asking again
    (a lease: with the same ``key``) gives the same rows.

    ``lease_id`` and ``key`` are those of the lease, when it was one.
    """

    def __init__(self, message: str, lease_id: str | None = None, key: str | None = None) -> None:
        super().__init__(message)
        self.lease_id = lease_id
        self.key = key


class TruncatedError(IcecoreError):
    """A SQL result was cut by a limit of the server that the caller did not ask
    for. ``result`` holds the rows that came."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class DataError(IcecoreError, ValueError):
    """Rows or arguments that break a rule of this package; the message says which
    row, and what to do."""


@dataclass(frozen=True)
class Refused:
    """An item that the server did not store, and why.

    ``index``: its place among the items of the request, or, from a writer, among
    all items that were given to it, from 0. ``kind``: ``trace``, ``begin``,
    ``rollout``, ``finish``, ``reward`` or ``logprobs``. ``id``: the item's own id.
    ``code``: docs/errors.md lists what each one asks for.
    """

    index: int
    kind: str
    id: str | None
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.index} ({self.id}): {self.code}: {self.message}"


class IngestError(IcecoreError):
    """Items were not stored. ``refused`` lists those that the server refused: they
    changed nothing, the others are stored. ``unsent`` counts items that are not
    acknowledged, when sending had to be given up."""

    def __init__(self, message: str, refused: Sequence[Refused] = (), unsent: int = 0) -> None:
        shown = [str(r) for r in refused[:10]]
        if len(refused) > len(shown):
            shown.append(f"… and {len(refused) - len(shown)} more")
        super().__init__("\n  ".join([message, *shown]))
        self.refused = list(refused)
        self.unsent = unsent
