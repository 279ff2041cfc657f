"""What the processes of an attempt may touch: the system, Python, and what the operator allows, read-only; and writable
what is their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import importlib.util
import os
from pathlib import Path
import sys

from torchyard.contract.devices import IsolationReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.records import Sandbox, Strict
from torchyard.contract.rundir import RunDir
from torchyard.host.datadir import folder_on_the_way
from worker.sandbox import landlock
from worker.sandbox.landlock import DEVICE, READ, WRITE, Access
from worker.sandbox.opening import canonical, check_names
from worker.sandbox.places import ENVIRONMENTS, UNPACKED, Places, shared_caches

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
_KERNEL = ("/proc", "/sys")
_NETWORK = ("hosts", "host.conf", "resolv.conf", "gai.conf", "hostname", "nsswitch.conf", "services", "protocols")
_CERTIFICATES = ("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "pki")
_LOADER = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")
_LOCALE = ("localtime", "timezone", "locale.alias", "locale.conf", "fonts", "mime.types", "magic", "terminfo")
_GPU_LIBRARIES = ("nccl.conf", "OpenCL", "vulkan", "egl", "glvnd", "libibverbs.d")
_SHELLS = ("passwd", "group", "os-release", "debian_version", "profile", "profile.d", "bash.bashrc", "gitconfig")
_ETC = (*_NETWORK, *_CERTIFICATES, *_LOADER, *_LOCALE, *_GPU_LIBRARIES, *_SHELLS)
"""The parts of /etc that libraries read. Others have keys and passwords, which root's jobs could read."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_TERMINALS = ("tty", "ptmx", "pts")
"""Only with mounts of its own: others are those of all processes of this user."""
_GPU_DEVICES = ("nvidia*", "dri", "kfd", "infiniband", "gdrdrv")
_OF_PREFIX = ("bin", "lib", "lib64", "include", "share", "etc", "ssl", "conda-meta", "nvvm", "targets", "pyvenv.cfg")
_PACKAGES = ("torchyard", "trainer", "worker")
_PATHS = ("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME", "HF_HUB_CACHE")
"""Variables of the operator that name files which jobs may read."""


TEMPORARY = Path("/tmp")  # noqa: S108 the attempt's own
"""Where an attempt with mounts of its own sees its temporary folder: sockets in it need a short path."""
_TEMPORARIES = (TEMPORARY, Path("/var/tmp"))  # noqa: S108 as above


def sandbox_of(
    isolation: IsolationReport,
    *,
    run: RunDir,
    places: Places,
    readable: Sequence[Path],
    writable: Sequence[Path],
    gpus: bool,
    own: Sequence[Path] = (),
    namespaces: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Sandbox | None:
    """Returns the sandbox of an attempt, or None if jobs are not isolated.

    `readable` and `writable`: what the operator allows. `gpus`: whether the attempt has any. `own`: what it reads
    besides, of its owner. `namespaces`: whether it may make some. `environ`: the worker's variables, with the places of
    libraries and shared caches.
    """
    if isolation.level == "off":
        return None
    shm = Path("/dev/shm")  # noqa: S108 what POSIX shared memory uses
    caches = places.home.parent
    closed = (run.root, caches, caches.with_name(ENVIRONMENTS), caches.with_name(UNPACKED))
    hidden = (Path.home(), *closed)
    found = (*map(Path, _KERNEL), *of_system(), *of_python(hidden), *_of_variables(environ), *readable)
    temporary = canonical(places.temporary)
    may_read = [*_paths(found), *map(canonical, (*own, run.input))]
    may_write = [*map(canonical, (run.job, places.home)), temporary, *_paths((shm, *writable))]
    return Sandbox(
        landlock=isolation.level == "landlock",
        own_mounts=isolation.own_mounts,
        own_pids=isolation.own_mounts and isolation.own_pids,
        filtered=isolation.filtered,
        namespaces=namespaces,
        closed=list(map(canonical, closed)),
        readable=may_read,
        writable=may_write,
        devices=_paths(_devices(gpus=gpus, terminals=isolation.own_mounts)),
        temporary=temporary,
        temporary_at=_replaced(temporary, (*may_read, *may_write)) if isolation.own_mounts else [],
    )


def install_sandbox(
    isolation: IsolationReport, *, folder: Path, readable: Sequence[Path], writable: Sequence[Path], temporary: Path
) -> Sandbox:
    """Returns the sandbox of a process that installs packages. It reads the system and Python, and has the network.

    It is confined also where jobs are not: by Landlock, if the kernel has that. `folder`: has the installation. What it
    runs may replace nothing there, as only some folders below it are `readable` or `writable`.
    """
    shm = Path("/dev/shm")  # noqa: S108 as above
    found = (*map(Path, _KERNEL), *of_system(), *of_python((Path.home(), folder)), *_of_variables(os.environ))
    return Sandbox(
        landlock=landlock.abi() > 0,
        own_mounts=isolation.own_mounts,
        own_pids=isolation.own_mounts and isolation.own_pids,
        filtered=isolation.filtered,
        closed=[canonical(folder)],
        readable=[*_paths(found), *map(canonical, readable)],
        writable=[*map(canonical, writable), *_paths([shm] if isolation.own_mounts else [])],
        devices=_paths(_devices(gpus=False, terminals=isolation.own_mounts)),
        temporary=str(temporary),
    )


def strict_sandbox(strict: Strict, places: Places) -> Sandbox:
    """Returns the sandbox of an attempt that a helper starts."""
    return Sandbox(
        landlock=False,
        own_mounts=True,
        readable=[],
        writable=[],
        devices=[],
        temporary=str(places.temporary),
        strict=strict,
    )


def rules(sandbox: Sandbox) -> list[tuple[str, Access]]:
    """Returns the sandbox as rules of Landlock."""
    writable = [temporary_in(sandbox) if path == sandbox.temporary else path for path in sandbox.writable]
    by_access = ((READ, sandbox.readable), (WRITE, writable), (DEVICE, sandbox.devices))
    return [(path, access) for access, paths in by_access for path in paths]


def temporary_in(sandbox: Sandbox) -> str:
    """Returns the path by which the processes in a sandbox find their temporary folder."""
    return sandbox.temporary_at[0] if sandbox.temporary_at else sandbox.temporary


def check_place(data_dir: Path, *, writable: Iterable[Path] = ()) -> None:
    """Raises ConfigError if what all jobs read contains the data directory, or is named in a folder of `writable`.

    `writable`: what jobs may write. They could replace a name there by a link to anything.
    """
    environ = {**os.environ, **shared_caches(os.environ)}
    shared = (*of_system(), *of_python((Path.home(), data_dir)), *_of_variables(environ))
    for path in shared:
        if (folder := folder_on_the_way(path, writable)) is not None:
            raise ConfigError(
                f"{path}, which all jobs read, is named in {folder}, which they may write: they could replace it by a"
                " link to other files. Let them write another folder (--allow-path, TORCHYARD_ALLOW_PATHS), or change"
                " the variable that names this one"
            )
    try:
        check_names(shared, closed=[os.path.realpath(data_dir)])
    except PermissionError as error:
        raise ConfigError(
            f"the data directory {data_dir} must not lie in {error.filename}, which all jobs read: choose another one"
            " (--data-dir, TORCHYARD_DATA_DIR), or another value of the variable that names this folder"
        ) from None


def of_system() -> Iterator[Path]:
    """Yields programs, libraries and their configuration, whether or not they exist."""
    yield from map(Path, _SYSTEM)
    yield from (Path("/etc", name) for name in _ETC)


def of_python(hidden: Sequence[Path]) -> Iterator[Path]:
    """Yields the environment's folders, but none that contains what is `hidden`. Its root may be a home."""
    for prefix in (sys.prefix, sys.base_prefix):
        yield from (Path(prefix, name) for name in _OF_PREFIX)
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None:
            yield from map(Path, spec.submodule_search_locations or ())
    for path in map(Path, sys.path):
        if path.is_absolute() and not any(item.is_relative_to(path) for item in hidden):
            yield path


def _of_variables(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in _PATHS:
        yield from (Path(part) for part in environ.get(name, "").split(os.pathsep) if part.startswith("/"))


def _replaced(temporary: str, opened: Iterable[str]) -> list[str]:
    """Returns the system's temporary folders in which the attempt has nothing but its own one."""
    others = [Path(path) for path in opened if path != temporary]
    folders = (folder for folder in _TEMPORARIES if folder.is_dir() and os.path.realpath(folder) == str(folder))
    return [
        str(folder)
        for folder in folders
        if not any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in others)
    ]


def _devices(*, gpus: bool, terminals: bool) -> Iterator[Path]:
    device = Path("/dev")
    yield from (device / name for name in (*_DEVICES, *(_TERMINALS if terminals else ())))
    for pattern in _GPU_DEVICES if gpus else ():
        yield from device.glob(pattern)


def _paths(found: Sequence[Path] | Iterator[Path]) -> list[str]:
    """Returns each existing path once, with links resolved: no job and no build may write where one of them lies."""
    return list(dict.fromkeys(os.path.realpath(path) for path in found if path.exists()))
