"""docs/trainers.md: what it names is there, and its snippets are Python."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "trainers.md").read_text()
SNIPPETS = re.findall(r"```py\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"icecore\.adapters\.(\w+\.\w+)", PAGE))))
def test_every_name_is_there(name):
    module, _, attribute = name.partition(".")
    assert hasattr(importlib.import_module(f"icecore.adapters.{module}"), attribute)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_snippet_compiles_and_imports_what_exists(snippet):
    compile(snippet, "docs/trainers.md", "exec")
    for module, names in re.findall(r"from (icecore\S*) import (.+)", snippet):
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name)
    for name in ("client", "batch"):
        used, said = (re.search(pattern, snippet) for pattern in (rf"\b{name}\b", rf"\b{name} = |as {name}:"))
        assert said or not used, f"{name} comes from nowhere"


def test_every_adapter_has_its_row():
    folder = Path(importlib.import_module("icecore.adapters").__path__[0])
    modules = {p.stem for p in folder.glob("[a-z]*.py")} - {"feed", "rows"}
    assert set(re.findall(r"\| `adapters\.(\w+)` \|", PAGE)) == modules
