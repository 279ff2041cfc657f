"""What an attempt sees besides the system: its own folders, Python, and what the operator allows."""

from collections.abc import Iterable, Sequence
import contextlib
from contextlib import ExitStack
from dataclasses import dataclass
import os
from pathlib import Path
import stat

from torchyard.contract.errors import ConfigError
from worker.environments.offered import Environments, folders_of
from worker.sandbox import shared
from worker.sandbox.helper import mounts
from worker.sandbox.helper.config import Config
from worker.sandbox.helper.mounts import IdmapRefused
from worker.sandbox.helper.orders import Folder, Order
from worker.sandbox.opening import Closed, closed_of, open_allowed
from worker.sandbox.strict.protocol import Refusal


@dataclass(frozen=True, kw_only=True)
class DetachedMount:
    """A mount that is attached nowhere yet."""

    path: Path
    """Where the attempt sees it."""
    mount: int
    is_folder: bool
    writable: bool


def mounts_of(config: Config, order: Order, *, uid: int, stack: ExitStack) -> list[DetachedMount]:
    """Returns all mounts of an attempt of the user `uid`. The mounts live until `stack` is closed.

    What belongs to the service's user on disk belongs to `uid` there. Forks, so no other thread may run. Raises
    Refusal if a file system cannot do that, and OSError.
    """
    owners = stack.enter_context(mounts.owners_swapped((uid, uid), config.service))
    own = [
        *((folder, False) for folder in order.bundles),
        (order.input, False),
        (order.job, True),
        *([] if order.work is None else [(order.work, True)]),
        (order.home, True),
        (order.temporary, True),
    ]
    detached = [_own(folder, owners, stack, writable=writable) for folder, writable in own]
    control = mounts.clone(
        order.control.descriptor, read_only=True
    )  # with the service as its owner: no job may list it
    stack.callback(os.close, control)
    detached.append(DetachedMount(path=order.control.path, mount=control, is_folder=True, writable=False))
    python = python_paths(config)
    data_dir = str(config.data_dir)
    closed = closed_of([data_dir], data_dir=data_dir, own=[os.path.realpath(path) for path in python])
    for path, writable in config.allowed.items():
        detached += _opened(path, stack, closed=closed, writable=writable, owners=owners)
    for path in python:
        detached += _opened(path, stack, closed=closed, writable=False)
    for path in environment_paths(config):
        detached += _opened(path, stack, closed=closed, writable=False)
    return sorted(detached, key=lambda each: len(each.path.parts))


def python_paths(config: Config) -> list[Path]:
    """Returns the files and folders of Python that are not part of the system, each once."""
    hidden = (Path.home(), config.data_dir)
    system = [path for path in shared.of_system() if path.exists()]
    paths = [path for path in shared.of_python(hidden) if path.exists()]
    named = dict.fromkeys((*paths, *(path.resolve() for path in paths)))
    return _outermost(path for path in named if not any(path.is_relative_to(outer) for outer in system))


def environment_paths(config: Config) -> list[Path]:
    """Returns the folders that jobs in one of the environments read, but for what they read in any case."""
    known = [path for path in (*shared.of_system(), *python_paths(config), *config.allowed) if path.exists()]
    writable = tuple(path for path, may_write in config.allowed.items() if may_write)
    environments = Environments(roots=config.environments, writable=writable, data_dir=config.data_dir)
    paths: list[Path] = [*config.environments]
    for folder in folders_of(config.environments):
        with contextlib.suppress(ConfigError):  # no job can run in it
            paths += environments.find(str(folder)).readable
    named = dict.fromkeys((*paths, *(path.resolve() for path in paths)))
    return _outermost(path for path in named if not any(path.is_relative_to(outer) for outer in known))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    outermost: list[Path] = []
    for path in sorted(paths, key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(outer) for outer in outermost):
            outermost.append(path)
    return outermost


def _own(folder: Folder, owners: int, stack: ExitStack, *, writable: bool) -> DetachedMount:
    try:
        mount = mounts.clone(folder.descriptor, owners=owners, read_only=not writable)
    except IdmapRefused as error:
        raise Refusal(f"strict isolation cannot give {folder.path} to the job's user: {error.strerror}") from None
    stack.callback(os.close, mount)
    return DetachedMount(path=folder.path, mount=mount, is_folder=True, writable=writable)


def _opened(
    path: Path, stack: ExitStack, *, closed: Closed, writable: bool, owners: int | None = None
) -> Sequence[DetachedMount]:
    """Returns the mount of what root has chosen, with the service's rights where the file system can do that.

    No job may write where one of its names lies, so it is resolved; nothing is followed when that is opened.
    """
    try:
        source = open_allowed(os.path.realpath(path), closed)
    except FileNotFoundError:
        return []
    stack.callback(os.close, source)
    try:
        mount = mounts.clone(source, owners=owners, read_only=not writable)
    except IdmapRefused:
        mount = mounts.clone(source, read_only=not writable)
    stack.callback(os.close, mount)
    is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
    return [DetachedMount(path=path, mount=mount, is_folder=is_folder, writable=writable)]
