"""`python -P -m worker`: the daemon of this host, configured by `TORCHYARD_*` variables.

On SIGTERM it exits, and the jobs go on under their supervisors until the next daemon adopts them. On SIGINT, and with
`--stop-jobs` on SIGTERM too, the jobs first save a checkpoint and go back to the queue. With `TORCHYARD_POOL` it serves
a partition of a cluster instead: then SIGINT is as SIGTERM.
"""

import argparse
from collections.abc import Callable, Generator
from contextlib import contextmanager
import logging
import os
from pathlib import Path
import signal
import sys
from types import FrameType

from torchyard.contract.errors import ConfigError, TorchyardError
from torchyard.host import device_locks, inspection
from torchyard.host.collector import paused
from torchyard.host.datadir import check_allowed_paths, enter_empty_folder, make_files_private, parse_allowed_paths
from torchyard.host.joined import JOINED_FILE, load

with paused():
    from worker import pools
    from worker.daemon import Daemon
    from worker.devices import inventory as devices
    from worker.devices.health import Health
    from worker.engines.local.confinement import Confinement
    from worker.engines.local.engine import LocalEngine
    from worker.engines.local.environment import inherited
    from worker.engines.local.warm.manager import WarmProcess
    from worker.host import orphans
    from worker.sandbox import levels, shared
    from worker.sandbox.levels import Isolation
    from worker.sandbox.writable import WritableFolders
    from worker.service import Service
    from worker.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="worker", description="Runs jobs on this host's devices.")
    parser.add_argument("--stop-jobs", action="store_true", help="requeue the running jobs on SIGTERM, too")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    umask = make_files_private()
    try:
        inspection.forbid()
        settings = Settings.load()
        check_allowed_paths(settings.root, parse_allowed_paths(settings.allow_paths))
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _daemon(settings, umask=umask if settings.umask is None else settings.umask) as daemon:
            on_sigterm = daemon.stop_jobs if arguments.stop_jobs else daemon.leave
            # The jobs of a pool need no daemon.
            on_sigint = daemon.stop_jobs if settings.partition is None else on_sigterm
            for number, action in ((signal.SIGINT, on_sigint), (signal.SIGTERM, on_sigterm)):
                signal.signal(number, _handler(action))
            daemon.serve()
    except (TorchyardError, OSError) as error:
        logging.error("%s", error)
        return 1
    return 0


@contextmanager
def _daemon(settings: Settings, *, umask: int) -> Generator[Daemon]:
    confinement = _confinement(settings)
    enter_empty_folder(settings.root)
    if settings.partition is not None:
        if _joined(settings).exists():
            raise ConfigError("TORCHYARD_POOL: a worker that has joined a service offers its own devices alone")
        with pools.opened(settings, confinement.isolation, umask=umask) as (engine, pool, service):
            yield Daemon(settings, engine, service, pool=pool)
        return
    logging.info("sandbox of jobs: %s", levels.describe(confinement.isolation))
    held = device_locks.holders() if settings.held_gpus == "leave" else {}
    inventory = devices.discover(settings.cpu_slots, held=held)
    with devices.lock_devices(inventory.devices, settings.root):
        orphans.start_collecting()
        gpus = [device.uuid for device in inventory.devices if device.kind == "cuda"]
        with _warm_process(settings) as warm:
            engine = LocalEngine(settings.runs, inventory, warm=warm, umask=umask, confinement=confinement)
            service, health = _service(settings), Health(inventory.nvml, gpus)
            yield Daemon(settings, engine, service, health=health, lacking=inventory.lacking)


def _service(settings: Settings) -> Service:
    """Returns how this host reaches its service: over HTTPS alone, if it has joined one. Raises ConfigError."""
    joined = _joined(settings)
    if joined.exists():
        from worker.remote.service import RemoteService  # a host of the service needs none of it

        return RemoteService.of(load(joined), settings)
    from worker.direct import DirectService  # it loads what speaks to databases, which is not on every host

    return DirectService.of(settings)


def _joined(settings: Settings) -> Path:
    return settings.root / JOINED_FILE


def _confinement(settings: Settings) -> Confinement:
    if settings.partition is not None:
        pools.check(settings)
    isolation = levels.level_of(settings.isolation, needs=settings.helper_needs)
    if isolation.level == "landlock":
        shared.check_place(settings.root, writable=settings.writable)
    if settings.temporary is not None:
        settings.temporary.mkdir(mode=0o700, exist_ok=True)
    return Confinement(
        isolation=isolation,
        own_folders=WritableFolders(settings.root, temporary=settings.temporary),
        readable=settings.allowed,
        writable=settings.writable,
        namespaces=settings.namespaces == "allow",
        helper=settings.helper,
    )


@contextmanager
def _warm_process(settings: Settings) -> Generator[WarmProcess | None]:
    if settings.launcher == "torchrun" or settings.isolation is Isolation.STRICT:
        yield None
        return
    warm = WarmProcess(inherited(os.environ))
    warm.open()
    try:
        yield warm
    finally:
        warm.close()


def _handler(action: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    return lambda number, frame: action()


if __name__ == "__main__":
    sys.exit(main())
