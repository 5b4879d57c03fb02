"""The wheel: it builds, and needs nothing but what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import icecore

PACKAGE = ROOT / "clients" / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(PACKAGE)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("icecore-*.whl")
    return path


def requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as z:
        (name,) = (n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
        said = z.read(name).decode()
    return re.findall(r"^Requires-Dist: (.*)$", said, re.M)


def closure(wanted: list[str]) -> list[metadata.Distribution]:
    """The installed distributions that these requirements bring, without extras."""
    found: dict[str, metadata.Distribution] = {}
    left = list(wanted)
    while left:
        requirement = Requirement(left.pop())
        if requirement.name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[requirement.name] = metadata.distribution(requirement.name)
        left += found[requirement.name].requires or []
    return list(found.values())


def test_it_holds_the_package_and_its_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as z:
        names = set(z.namelist())
    sources = {f"icecore/{p.relative_to(PACKAGE / 'src' / 'icecore').as_posix()}" for p in (PACKAGE / "src" / "icecore").rglob("*.py")}
    assert sources | {"icecore/py.typed"} <= names
    assert not any(n.startswith(("tests", "bench")) for n in names)
    assert f"icecore-{icecore.__version__}-py3-none-any.whl" == wheel.name


def test_it_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """With its declared requirements alone: no torch, pandas or polars. They are
    linked from here, so that the test needs no network."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    libraries = Path(subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip())
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    for dist in closure(requirements(wheel)):
        for top in {f.parts[0] for f in dist.files or [] if f.parts[0] not in ("..", "__pycache__")}:
            if not (libraries / top).exists():
                os.symlink(str(dist.locate_file(top)), libraries / top)
    program = """
import sys, icecore
from icecore import Client, AsyncClient
import icecore.writer, icecore.prefetch
print(icecore.__version__, icecore.__file__)
assert not {"torch", "pandas", "polars"} & set(sys.modules)
try:
    import torch
except ImportError:
    print("no torch")
print(icecore.advantages([1.0, 0.0], ["g", "g"], "dr_grpo").advantage.tolist())
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ended = subprocess.run([python, "-W", "error", "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)
    assert ended.returncode == 0, ended.stderr
    first, second, third = ended.stdout.splitlines()
    assert first.split() == [icecore.__version__, str(libraries / "icecore" / "__init__.py")]
    assert (second, third) == ("no torch", "[0.5, -0.5]")


def test_building_needs_no_more_than_its_pinned_requirements() -> None:
    """make wheel builds in an environment of these alone, so that it needs no torch."""
    lines = (PACKAGE / "requirements-build.txt").read_text().splitlines()
    wanted = [Requirement(line) for line in lines if not line.startswith("#")]
    here = {r.name: str(r.specifier) for r in wanted if r.marker is None or r.marker.evaluate()}
    needed = {canonicalize_name(d.name): f"=={d.version}" for d in closure(["build", "hatchling"])}
    assert {canonicalize_name(name): pin for name, pin in here.items()} == needed
    rule = re.search(r"^wheel: (.*)\n\t(\S+)", (ROOT / "Makefile").read_text(), re.M)
    assert rule is not None and rule.groups() == (".venv-build/made", ".venv-build/bin/python")


def test_torch_that_is_not_there_is_named(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["torch"] = None  # as if it were not installed
try:
    from icecore.torch import Batches
except ImportError as e:
    print(e)
"""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src")}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)
    assert "icecore[torch]" in ended.stdout, ended.stderr


def test_its_version_is_the_servers() -> None:
    source = (ROOT / "cmd" / "icecore" / "version.go").read_text()
    said = re.search(r'^var version = "([^"]+)"', source, re.M)
    assert said is not None and Version(said[1]) == Version(icecore.__version__)
