"""A client whose leases are made of tables: hands them out in order, keeps what was asked."""

from __future__ import annotations

from typing import Any

from icecore.lease import Batch


class Leases:
    """The part of icecore.Client that adapters use."""

    def __init__(self, *tables: Any) -> None:
        self.batches = [Batch.of_table(t, lease_id=f"lease-{i}", key=f"key-{i}") for i, t in enumerate(tables)]
        self.left = list(self.batches)
        self.asked: list[dict[str, Any]] = []

    def lease(self, consumer: str, **fields: Any) -> Batch | None:
        self.asked.append({"consumer": consumer, **fields})
        return self.left.pop(0) if self.left else None

    @property
    def states(self) -> list[str]:
        return [b.state for b in self.batches]
