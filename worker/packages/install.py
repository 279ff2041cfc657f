"""Installs the packages of one environment: `python -P -m worker.packages.install ORDER`, an `InstallOrder` as JSON.

What it runs may be hostile: packages that are built run code of their own. So it enters a sandbox first, where it may
write its own folder and the owner's downloads alone. Its output is the log of the set-up. If uv failed, which has said
why, it exits as uv did: with 1 for what cannot be resolved or built, with 2 for all other errors.
"""

from collections.abc import Iterator
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
from typing import NoReturn

from torchyard.contract import inspection
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.inspection import prctl
from worker.engines.local import process
from worker.packages import lines
from worker.packages.order import (
    CONSTRAINTS,
    INDEX,
    LOCK,
    PYPROJECT,
    REQUIREMENTS,
    SCRIPT,
    SERVICE,
    InstallOrder,
)
from worker.sandbox import landlock, namespaces, privileges, seccomp
from worker.sandbox.policy import rules

_PR_SET_PDEATHSIG = 1
_PASSED = ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy", "all_proxy")


def main() -> None:
    """Raises OSError if this process cannot be confined."""
    order = InstallOrder.from_json(sys.argv[1])
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker that is killed leaves nobody who installs
    process.become_subreaper()
    os.umask(0o077)
    _enter(order)
    folder = Path(order.folder)
    os.chdir(folder / "work")
    env = _environment(order)
    for command in _commands(order):
        done = subprocess.run([order.uv, *command], env=env, stdin=subprocess.DEVNULL, check=False)
        while process.kill_children():  # a build may leave some, which could go on writing the environment
            pass
        if done.returncode:
            sys.exit(2 if done.returncode == 2 else 1)
    _see_workers_packages(order)
    os.chdir(folder)
    shutil.rmtree(folder / "work", ignore_errors=True)
    _make_read_only(folder / "venv")


def _enter(order: InstallOrder) -> None:
    """Goes on in the sandbox; with pids of its own, in a child whose exit code becomes that of this process."""
    sandbox = order.sandbox
    inspection.permit()
    if sandbox.own_mounts:
        namespaces.unshare(pids=sandbox.own_pids)
        if sandbox.own_pids and (child := os.fork()):
            _exit_like(child)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        namespaces.make_mounts(sandbox.writable, pids=sandbox.own_pids)
    privileges.drop()
    privileges.limit_resources()
    if sandbox.landlock:
        landlock.restrict(rules(sandbox))
    if sandbox.filtered:
        seccomp.restrict(others=not sandbox.own_pids)


def _exit_like(child: int) -> NoReturn:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _environment(order: InstallOrder) -> dict[str, str]:
    work = Path(order.folder, "work")
    index = {"UV_DEFAULT_INDEX": os.environ[INDEX]} if INDEX in os.environ else {}
    return index | {
        **{name: value for name, value in os.environ.items() if name in _PASSED},
        "HOME": str(work),
        "TMPDIR": str(work),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "UV_CACHE_DIR": order.downloads,
        "UV_COMPILE_BYTECODE": "1",
        "UV_LINK_MODE": "copy",
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def _commands(order: InstallOrder) -> Iterator[list[str]]:
    """Yields the arguments of each call of uv, after the call before it has ended."""
    folder = Path(order.folder)
    given, work, venv = folder / "input", folder / "work", folder / "venv"
    into = ["pip", "install", "--python", str(venv / "bin" / "python"), *([] if order.builds else ["--no-build"])]
    yield ["venv", "--quiet", "--no-project", "--python", sys.executable, str(venv)]
    if order.kind == "lock":
        yield _export(given, work)
        locked = work / "locked.txt"
        if INDEX in os.environ:
            locked.write_text(_checked(locked.read_text(encoding="utf-8")), encoding="utf-8")
        yield [*into, "--no-deps", "-r", str(locked)]
        return
    excludes = work / "provided.txt"
    excludes.write_text("".join(f"{name}\n" for name in order.provided))
    source = given / (REQUIREMENTS if order.kind == "requirements" else SCRIPT)
    constraints = ["-c", str(given / CONSTRAINTS)] if (given / CONSTRAINTS).exists() else []
    yield [*into, "--excludes", str(excludes), "-r", str(source), *constraints]


def _export(given: Path, work: Path) -> list[str]:
    project = work / "project"  # uv wants to lock it, and reads its settings wherever else it runs in it
    project.mkdir()
    for name in (PYPROJECT, LOCK):
        shutil.copyfile(given / name, project / name)
    export = ["export", "--quiet", "--frozen", "--no-dev", "--no-emit-workspace", "--no-emit-local", "--no-header"]
    export += [] if INDEX in os.environ else ["--emit-index-url"]
    export += ["--no-annotate", "--no-emit-package", SERVICE, "--python", sys.executable]
    return [*export, "-o", str(work / "locked.txt"), "--project", str(project)]


def _checked(text: str) -> str:
    """Returns the lines of an exported lock, or exits if one says where its package comes from."""
    try:
        return lines.checked(text, LOCK)
    except (ConfigError, DataError) as error:
        sys.exit(f"error: {error.message}")


def _see_workers_packages(order: InstallOrder) -> None:
    """Has the environment find the worker's packages behind its own, with those that are links to a source tree."""
    (packages,) = Path(order.folder, "venv", "lib").glob("python*/site-packages")
    lines = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in order.site)
    (packages / "zz_torchyard_worker.pth").write_text(lines)


def _make_read_only(top: Path) -> None:
    for folder, _, files in os.walk(top, topdown=False):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o400 | (path.lstat().st_mode & 0o100))
        Path(folder).chmod(0o500)


if __name__ == "__main__":
    main()
