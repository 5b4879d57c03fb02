"""Client of icecore, the trajectory warehouse for RL of language agents.

    client = icecore.Client("http://127.0.0.1:7470")

Writing, asking and leasing are methods of Client (and AsyncClient). What a learner
does with rows are functions here: pack, pad, balance, check, fill_missing,
advantages, mismatch. ``icecore.torch`` needs torch, ``icecore.adapters`` the trainer
that each of them feeds; neither is imported before it is used.
"""

from importlib import import_module
from types import ModuleType

from ._version import __version__
from .aio import AsyncClient
from .aiolease import AsyncBatch, AsyncNothing, AsyncPrefetcher
from .aiowriter import AsyncWriter
from .balance import balance
from .checks import check, comparable, fill_missing
from .client import Client
from .errors import (
    ConnectionFailed,
    DataError,
    IcecoreError,
    IngestError,
    LeaseLost,
    ProblemError,
    Refused,
    StreamError,
    TruncatedError,
)
from .estimate import advantages, row_weights
from .export import Page
from .ingest import Item
from .lease import Batch, LeaseOptions, Nothing, Waiting
from .mismatch import mismatch
from .packing import Pack, pack, pack_ranks
from .padding import Padded, fill_up, noop, pad
from .prefetch import Prefetcher
from .rows import Row
from .sql import Result
from .writer import Writer

__all__ = [
    "AsyncBatch",
    "AsyncClient",
    "AsyncNothing",
    "AsyncPrefetcher",
    "AsyncWriter",
    "Batch",
    "Client",
    "ConnectionFailed",
    "DataError",
    "IcecoreError",
    "IngestError",
    "Item",
    "LeaseLost",
    "LeaseOptions",
    "Nothing",
    "Pack",
    "Padded",
    "Page",
    "Prefetcher",
    "ProblemError",
    "Refused",
    "Result",
    "Row",
    "StreamError",
    "TruncatedError",
    "Waiting",
    "Writer",
    "__version__",
    "advantages",
    "balance",
    "check",
    "comparable",
    "fill_missing",
    "fill_up",
    "mismatch",
    "noop",
    "pack",
    "pack_ranks",
    "pad",
    "row_weights",
]


def __getattr__(name: str) -> ModuleType:
    if name in ("adapters", "torch"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
