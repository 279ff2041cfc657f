"""What all jobs of a host may read: the system, Python, and what the worker's variables name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
import importlib.util
import os
from pathlib import Path
import sys

from torchyard.contract.errors import ConfigError
from torchyard.host.datadir import folder_on_the_way
from worker.host.job_variables import CERTIFICATES
from worker.sandbox.opening import check_names

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
_NETWORK = ("hosts", "host.conf", "resolv.conf", "gai.conf", "hostname", "nsswitch.conf", "services", "protocols")
_CERTIFICATES = ("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "pki")
_LOADER = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")
_LOCALE = ("localtime", "timezone", "locale.alias", "locale.conf", "fonts", "mime.types", "magic", "terminfo")
_GPU_LIBRARIES = ("nccl.conf", "OpenCL", "vulkan", "egl", "glvnd", "libibverbs.d")
_SHELLS = ("passwd", "group", "os-release", "debian_version", "profile", "profile.d", "bash.bashrc", "gitconfig")
_ETC = (*_NETWORK, *_CERTIFICATES, *_LOADER, *_LOCALE, *_GPU_LIBRARIES, *_SHELLS)
"""The parts of /etc that libraries read. Others have keys and passwords, which root's jobs could read."""
_OF_PREFIX = ("bin", "lib", "lib64", "include", "share", "etc", "ssl", "conda-meta", "nvvm", "targets", "pyvenv.cfg")
_PACKAGES = ("torchyard", "trainer", "worker")
_PATHS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME", "HF_HUB_CACHE", "SSL_CERT_DIR", *CERTIFICATES)
"""Variables of the operator that name files which jobs may read."""

TEMPORARY = Path("/tmp")  # noqa: S108 the attempt's own
"""Where an attempt with mounts of its own sees its temporary folder: sockets in it need a short path."""


def check_place(data_dir: Path, *, writable: Iterable[Path] = ()) -> None:
    """Raises ConfigError if what all jobs read contains the data directory, or is named in a folder of `writable`.

    `writable`: what jobs may write. They could replace a name there by a link to anything.
    """
    environ = {**os.environ, **shared_caches(os.environ)}
    shared = (*of_system(), *of_python((Path.home(), data_dir)), *of_variables(environ))
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
    yield from _of_installation()
    inside = [f"{path}/" for path in hidden]
    for path in map(Path, sys.path):
        if path.is_absolute() and not any(name.startswith(f"{path}/") for name in inside):
            yield path


@cache
def _of_installation() -> tuple[Path, ...]:
    paths = [Path(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in _OF_PREFIX]
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None:
            paths += map(Path, spec.submodule_search_locations or ())
    return tuple(paths)


def of_variables(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the files that the operator's variables name."""
    for name in _PATHS:
        yield from (Path(part) for part in environ.get(name, "").split(os.pathsep) if part.startswith("/"))


def shared_caches(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that name what all jobs read of the operator's caches. `environ`: the worker's."""
    return {"HF_HUB_CACHE": str(Path(environ["HF_HOME"], "hub"))} if "HF_HOME" in environ else {}
