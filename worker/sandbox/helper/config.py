"""What root decides when the helper is started."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
import pwd
import shutil
from typing import Self

from torchyard.contract.errors import ConfigError
from torchyard.host.datadir import WRITABLE, check_allowed_paths, parse_allowed_paths
from worker.environments import offered
from worker.sandbox import shared
from worker.sandbox.helper.cgroups import Cgroups
from worker.sandbox.helper.state import State
from worker.sandbox.strict.protocol import Network

_PATH = "/usr/local/bin:/usr/bin:/bin"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The helper's options, checked."""

    service: tuple[int, int]
    """The uid and gid of worker and API."""
    data_dir: Path
    socket: Path
    state: State
    allowed: Mapping[Path, bool]
    """The folders that jobs may read, and whether they may write them."""
    environments: tuple[Path, ...]
    """The environments that jobs may name, and folders of such: root alone decides which."""
    network: Network
    shm: int
    """Bytes of each attempt's `/dev/shm`."""
    cgroups: Cgroups
    bwrap: str

    @classmethod
    def parse(cls, arguments: Sequence[str] | None = None) -> Self:
        """Reads the options. Raises ConfigError, and SystemExit for wrong syntax."""
        given = _parser().parse_args(arguments)
        if os.geteuid() != 0:
            raise ConfigError("the helper of strict isolation must run as root")
        bwrap = shutil.which("bwrap", path=_PATH)
        if bwrap is None:
            raise ConfigError("there is no bwrap: install bubblewrap 0.8 or later")
        uids = range(given.first_uid, given.first_uid + given.uids)
        if not uids or uids[0] < 1000 or given.service_user[0] in uids:
            raise ConfigError("--first-uid and --uids must name uids of their own: from 1000 on, not the service's")
        data_dir = given.data_dir.resolve()
        named = {path: rw for text in given.allow_path for path, rw in parse_allowed_paths(text).items()}
        check_allowed_paths(data_dir, named)
        shared.check_place(data_dir, writable=[path for path, rw in named.items() if rw])
        return cls(
            service=given.service_user,
            data_dir=data_dir,
            socket=given.socket,
            state=State(given.state_dir, uids),
            allowed={path.resolve(): rw for path, rw in named.items()},
            environments=environments_of(given.environments, data_dir, writable=[p for p, rw in named.items() if rw]),
            network=given.network,
            shm=given.shm,
            cgroups=Cgroups(root=given.cgroup, memory=given.memory, pids=given.pids),
            bwrap=bwrap,
        )


def environments_of(text: str, data_dir: Path, *, writable: Sequence[Path]) -> tuple[Path, ...]:
    """Returns the folders of the option. Raises ConfigError for one that jobs may write, or with the service's data."""
    folders = offered.parse(text)
    known = offered.Environments(roots=folders, writable=tuple(writable), data_dir=data_dir)
    for folder in folders:
        if not folder.is_absolute() or not folder.is_dir():
            raise ConfigError(f"--environments must name folders by absolute paths: {folder} is none")
        if (problem := known.unsafe_place(folder)) is not None:
            raise ConfigError(problem)
    return folders


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="helper", description="Starts attempts in strict isolation. Runs as root.")
    parser.add_argument("--service-user", type=_user, required=True, help="whose worker may ask: a name, or UID:GID")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--socket", type=Path, default=Path("/run/torchyard/helper.sock"))
    parser.add_argument("--state-dir", type=Path, default=Path("/var/lib/torchyard-helper"), help="for root alone")
    parser.add_argument("--first-uid", type=int, default=200_000)
    parser.add_argument("--uids", type=int, default=10_000, help="how many owners can have a uid")
    parser.add_argument("--allow-path", action="append", default=[], help=f"DIR or DIR:{WRITABLE}, as for the worker")
    parser.add_argument("--environments", default="", help="DIR:DIR, as TORCHYARD_ENVIRONMENTS of the worker")
    parser.add_argument("--network", choices=("none", "egress"), default="none")
    parser.add_argument("--shm", type=_size, default=_size("8g"), help="bytes of /dev/shm of an attempt")
    parser.add_argument("--cgroup", type=Path, help="a folder of cgroup v2 that is delegated to the helper")
    parser.add_argument("--memory", type=_size, help="memory.max of an attempt")
    parser.add_argument("--pids", type=int, help="pids.max of an attempt")
    return parser


def _user(text: str) -> tuple[int, int]:
    uid, colon, gid = text.partition(":")
    try:
        user = (int(uid), int(gid)) if colon else pwd.getpwnam(text)[2:4]
    except (KeyError, ValueError):
        raise ArgumentTypeError(f"there is no user {text}") from None
    if 0 in user:
        raise ArgumentTypeError("the service must not run as root")
    return user


def _size(text: str) -> int:
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].lower() in _UNITS else (text, "")
    if not number.isdecimal() or not int(number):
        raise ArgumentTypeError(f"{text} is not a size: write bytes, or for instance 8g")
    return int(number) * _UNITS.get(unit, 1)
