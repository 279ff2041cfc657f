"""A pool: a partition of a cluster, which one of any number of daemons serves at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
import logging
import os
from pathlib import Path
import socket
import time
from typing import TYPE_CHECKING

from torchyard.contract.cluster.devices import IsolationReport, PoolReport
from torchyard.contract.errors import ConfigError, NotMigrated, Unavailable
from torchyard.host.identity import boot_id
from worker.devices.inventory import DeviceLocks
from worker.sandbox.levels import Isolation
from worker.settings import Settings

if TYPE_CHECKING:
    from worker.direct import DirectService
    from worker.engines.slurm.engine import SlurmEngine

_LONGEST_HOST = 27
_AGAIN_S = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pool:
    """What a daemon needs of its pool besides the engine."""

    name: str
    report: Callable[[], PoolReport]
    """Returns what the cluster has said of the partition. Does not wait."""
    isolation: IsolationReport
    """What keeps apart what the daemon itself runs for jobs: installations of packages."""
    holder: str
    """Tells this daemon from those on other hosts, which wait until it is gone: `HOST/BOOT`."""


def check(settings: Settings) -> None:
    """Raises ConfigError for settings that a pool cannot have."""
    if settings.isolation is Isolation.STRICT:
        raise ConfigError(
            "TORCHYARD_ISOLATION: strict is not possible with TORCHYARD_POOL: its helper of root would have to run on"
            " every node. Choose require, with which a node without Landlock starts nothing"
        )


@contextmanager
def opened(
    settings: Settings, isolation: IsolationReport, *, umask: int
) -> Generator[tuple[SlurmEngine, Pool, DirectService]]:
    """Opens the pool that the settings name: waits until the database says whose it is. The caller closes the service.

    Raises NotMigrated, ConfigError and OSError.
    """
    from worker.direct import DirectService  # a remote worker needs neither
    from worker.engines.slurm.engine import SlurmEngine
    from worker.engines.slurm.pool import PoolSettings
    from worker.engines.slurm.records import NodeRules

    assert settings.isolation is not Isolation.STRICT  # `check` has refused it
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(settings.home):
        holder = _holder()
        service = DirectService.of(settings, holder=holder)
        name = str(settings.partition)
        of_pool = PoolSettings(
            partition=name, ahead=settings.slurm_ahead, rules=settings.pool_rules, cpu_slots=settings.cpu_slots
        )
        rules = NodeRules(
            root=str(settings.home),
            isolation=settings.isolation.value,
            readable=[*map(str, settings.allowed)],
            writable=[*map(str, settings.writable)],
            namespaces=settings.namespaces == "allow",
            umask=umask,
            interface=settings.interface,
        )
        engine = SlurmEngine(settings.runs, service_id=_service_id(service), pool=of_pool, rules=rules)
        try:
            yield engine, Pool(name, engine.pool, isolation, holder), service
        finally:
            engine.close()


@contextmanager
def _locked(home: Path) -> Generator[None]:
    """Keeps other daemons of this host from serving the pool in `home`. Raises ConfigError if one does, and OSError.

    The file is that of this boot, so a file system that shares locks keeps no daemon of another host from waiting.
    """
    with DeviceLocks() as locks:
        named = {"pid": os.getpid(), "data_dir": str(home)}
        locks.acquire(home / f"worker.{boot_id()}.lock", name=f"the pool in {home}", holder=named)
        yield


def _holder() -> str:
    """Returns the name that daemons on this host have until it is started again: one at a time serves a pool."""
    return f"{socket.gethostname()[:_LONGEST_HOST]}/{boot_id()}"


def _service_id(service: DirectService) -> str:
    """Returns the service's id as soon as the database answers. Raises NotMigrated and ConfigError."""
    while True:
        try:
            return service.service_id()
        except NotMigrated:
            raise
        except Unavailable as error:
            logger.warning("%s; trying again", error.message)
            time.sleep(_AGAIN_S)
