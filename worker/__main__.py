"""`python -P -m worker`: the daemon of this host, set by `TORCHYARD_*` variables.

SIGTERM leaves and lets the jobs run on under their supervisors, for the next daemon to adopt. SIGINT, or
`--stop-jobs` with either, lets them save a checkpoint and go back to the queue first.
"""

import argparse
from collections.abc import Callable, Generator
from contextlib import contextmanager
import logging
import os
import signal
import sys
from types import FrameType

from torchyard.contract.collector import paused
from torchyard.contract.errors import TorchyardError

with paused():
    from worker.daemon import Daemon
    from worker.devices import inventory as devices
    from worker.devices.health import Health
    from worker.engines.local import orphans
    from worker.engines.local.engine import LocalEngine
    from worker.engines.local.environment import inherited
    from worker.engines.local.warm.keeper import WarmProcess
    from worker.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="worker", description="Runs jobs on this host's devices.")
    parser.add_argument("--stop-jobs", action="store_true", help="on SIGTERM too, requeue the running jobs")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = Settings.load()
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        inventory = devices.discover(settings.cpu_slots)
        with devices.lock_devices(inventory.devices, settings.root):
            orphans.adopt()
            gpus = [device.uuid for device in inventory.devices if device.kind == "cuda"]
            with _warm_process(settings) as warm:
                engine, health = LocalEngine(settings.runs, inventory, warm=warm), Health(inventory.nvml, gpus)
                daemon = Daemon(settings, engine, health=health)
                on_term = daemon.stop_jobs if arguments.stop_jobs else daemon.leave
                for number, act in ((signal.SIGINT, daemon.stop_jobs), (signal.SIGTERM, on_term)):
                    signal.signal(number, _handler(act))
                daemon.serve()
    except (TorchyardError, OSError) as error:
        logging.error("%s", error)
        return 1
    return 0


@contextmanager
def _warm_process(settings: Settings) -> Generator[WarmProcess | None]:
    if settings.launcher == "torchrun":
        yield None
        return
    warm = WarmProcess(inherited(os.environ))
    warm.open()
    try:
        yield warm
    finally:
        warm.close()


def _handler(act: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    return lambda number, frame: act()


if __name__ == "__main__":
    sys.exit(main())
