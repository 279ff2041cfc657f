"""Installs the packages of one environment: `python -P -m worker.packages.install ORDER`, an `InstallOrder` as JSON.

What it runs may be hostile: packages that are built run code of their own. So a child enters a sandbox first, where it
may write the environment, its work and the owner's downloads alone. This process stays outside, and ends once nothing
that was started is left. Its output is the log of the set-up. If uv failed, which has said why, it exits as uv did:
with 1 for what cannot be resolved or built, with 2 for all other errors.
"""

from collections.abc import Iterator, Sequence
import contextlib
import os
from pathlib import Path
import shutil
import signal
import stat
import subprocess
import sys
from typing import NoReturn

from torchyard.contract.errors import ConfigError, DataError
from torchyard.host import inspection
from torchyard.host.parent import end_with_parent
from torchyard.host.untrusted import folder_inside
from worker.host import job_variables, process
from worker.packages import lines, project
from worker.packages import rules as rules_of_packages
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
from worker.packages.provided import overridden
from worker.sandbox import landlock, namespaces, privileges, seccomp
from worker.sandbox.policy import rules

_MOST_METADATA = 1 << 18
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED = ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy", "all_proxy")


def main() -> None:
    """Raises OSError if this process cannot be confined."""
    order = InstallOrder.from_json(sys.argv[1])
    end_with_parent(signal.SIGKILL)  # a worker that is killed leaves nobody who installs
    process.become_subreaper()
    os.umask(0o077)
    if order.projects:  # outside the sandbox, in which nothing of the code is open
        project.copy(Path(order.code), Path(order.folder, "work", project.CODE))
    if child := os.fork():
        _exit_after(child)
    _enter(order)
    os.chdir(Path(order.folder, "work"))
    env = _environment(order)
    for command in _commands(order):
        done = subprocess.run([order.uv, *command], env=env, stdin=subprocess.DEVNULL, check=False)
        _kill_children()  # a build may leave some, which could go on writing the environment
        if done.returncode:
            sys.exit(2 if done.returncode == 2 else 1)
    _tell_overridden(order)
    try:
        _see_workers_packages(order)
        _make_read_only(Path(order.folder, "venv"))
    except OSError as error:
        sys.exit(f"what was installed has changed the environment itself: {error}")


def _exit_after(child: int) -> NoReturn:
    """Waits for the child and ends all that it has left. Then exits as it did."""
    inspection.forbid()
    _, status = os.waitpid(child, 0)
    _kill_children()
    _exit_like(status)


def _kill_children() -> None:
    while process.kill_children():
        pass


def _enter(order: InstallOrder) -> None:
    """Goes on in the sandbox; with pids of its own, in a child whose exit code becomes that of this process.

    What it starts can neither trace nor inspect it, so that it seals the environment after them.
    """
    sandbox = order.sandbox
    end_with_parent(signal.SIGKILL)
    process.become_subreaper()
    inspection.permit()
    if sandbox.own_mounts:
        namespaces.unshare(pids=sandbox.own_pids)
        if sandbox.own_pids and (child := os.fork()):
            _exit_like(os.waitpid(child, 0)[1])
        end_with_parent(signal.SIGKILL)
        namespaces.make_mounts(
            sandbox.writable,
            pids=sandbox.own_pids,
            closed=sandbox.closed,
            data_dir=sandbox.data_dir,
            own=sandbox.own,
        )
    privileges.drop()
    privileges.limit_resources()
    if sandbox.landlock:
        limits = landlock.limits_of(closed=sandbox.closed, data_dir=sandbox.data_dir, own=sandbox.own)
        landlock.restrict(rules(sandbox), limits=limits)
    if sandbox.filtered:
        seccomp.restrict(others=not sandbox.own_pids)
    inspection.forbid()


def _exit_like(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _environment(order: InstallOrder) -> dict[str, str]:
    work = Path(order.folder, "work")
    given = job_variables.given(os.environ)
    chosen = os.environ.get(INDEX) or given.get("PIP_INDEX_URL")
    index = {"UV_DEFAULT_INDEX": chosen} if chosen else {}
    authorities = next((given[name] for name in job_variables.CERTIFICATES if name in given), "")
    return index | {
        **({"SSL_CERT_FILE": authorities} if authorities else {}),
        **{name: value for name, value in os.environ.items() if name in _PASSED},
        **given,
        "HOME": str(work),
        "TMPDIR": str(work),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "UV_CACHE_DIR": order.downloads,
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
        yield _export(given, work, order.provided)
        locked = work / "locked.txt"
        if INDEX in os.environ:
            locked.write_text(_checked(locked.read_text(encoding="utf-8")), encoding="utf-8")
        yield [*into, "--no-deps", "-r", str(locked)]
        return
    excludes = work / "provided.txt"
    excludes.write_text("".join(f"{name}\n" for name in order.provided))
    source = given / (REQUIREMENTS if order.kind == "requirements" else SCRIPT)
    constraints = ["-c", str(given / CONSTRAINTS)] if (given / CONSTRAINTS).exists() else []
    projects = [str(work / project.CODE / name) for name in order.projects]
    yield [*into, "--excludes", str(excludes), "-r", str(source), *constraints, *projects]


def _export(given: Path, work: Path, provided: Sequence[str]) -> list[str]:
    project = work / "project"  # uv wants to lock it, and reads its settings wherever else it runs in it
    project.mkdir()
    for name in (PYPROJECT, LOCK):
        shutil.copyfile(given / name, project / name)
    export = ["export", "--quiet", "--frozen", "--no-dev", "--no-emit-workspace", "--no-emit-local", "--no-header"]
    export += [] if INDEX in os.environ else ["--emit-index-url"]
    export += ["--no-annotate", "--python", sys.executable]
    export += [part for name in {SERVICE, *provided} for part in ("--no-emit-package", name)]
    return [*export, "-o", str(work / "locked.txt"), "--project", str(project)]


def _checked(text: str) -> str:
    """Returns the lines of an exported lock, or exits if one says where its package comes from."""
    try:
        return lines.checked(text, LOCK)
    except (ConfigError, DataError) as error:
        sys.exit(f"error: {error.message}")


def _tell_overridden(order: InstallOrder) -> None:
    """Says what the installed packages ask of the worker's, and do not get, before the ranks start."""
    versions = {name: rules_of_packages.version(name) for name in order.provided if name != SERVICE}
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = ("venv", "lib", python, "site-packages")
    with contextlib.suppress(OSError), folder_inside(Path(order.folder), *path) as site:
        for name in sorted(os.listdir(site)):  # noqa: PTH208 of a descriptor
            if name.endswith(".dist-info"):
                for line in overridden(_metadata(site, name), versions):
                    print(f"note: {line}", file=sys.stderr, flush=True)  # noqa: T201 the log of the set-up


def _metadata(site: int, name: str) -> str:
    """Returns the METADATA of a package, as far as that is a file of a bearable size."""
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=site)
    except OSError:
        return ""
    try:
        file = os.open("METADATA", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(file, "rb") as opened:
            return opened.read(_MOST_METADATA).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(folder)


def _see_workers_packages(order: InstallOrder) -> None:
    """Has the environment find the worker's packages behind its own, with those that are links to a source tree."""
    lines = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in order.site)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    with folder_inside(Path(order.folder), "venv", "lib", python, "site-packages") as packages:
        descriptor = os.open("zz_torchyard_worker.pth", _NEW, 0o600, dir_fd=packages)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(lines)


def _make_read_only(top: Path) -> None:
    """Follows no link. Nothing else runs that could make one meanwhile. Raises OSError."""
    with folder_inside(top.parent, top.name) as opened:
        for _, _, files, folder in os.fwalk(".", topdown=False, dir_fd=opened):
            for name in files:
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if not stat.S_ISLNK(mode):
                    os.chmod(name, 0o400 | (mode & 0o100), dir_fd=folder)
            os.fchmod(folder, 0o500)


if __name__ == "__main__":
    main()
