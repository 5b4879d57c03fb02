"""Trainers' own packages, for tests that run them."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def need(module: str) -> Any:
    """The module; where it is not installed the test is skipped, and fails under `make trainers`."""
    if os.environ.get("ICECORE_TRAINERS"):
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=f"{module.split('.')[0]} is tested with `make trainers`")
