"""`python -P -m worker`: the daemon of this host, set by `TORCHYARD_*` variables.

SIGTERM leaves and lets the jobs run on under their supervisors, for the next daemon to adopt. SIGINT, or
`--stop-jobs` with either, lets them save a checkpoint and go back to the queue first.
"""

import argparse
import logging
import signal
import sys

from pydantic import ValidationError

from store.settings import Settings
from torchyard.errors import TorchyardError
from worker import devices
from worker.daemon import Daemon


def main() -> int:
    parser = argparse.ArgumentParser(prog="worker", description="Runs jobs on this host's devices.")
    parser.add_argument("--stop-jobs", action="store_true", help="on SIGTERM too, requeue the running jobs")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = Settings()
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        inventory = devices.discover(settings.cpu_slots)
        with devices.lock_devices(inventory.devices, settings.root):
            daemon = Daemon(settings, inventory)
            signal.signal(signal.SIGINT, lambda *_: daemon.stop_jobs())
            signal.signal(signal.SIGTERM, lambda *_: daemon.stop_jobs() if arguments.stop_jobs else daemon.leave())
            daemon.serve()
    except (TorchyardError, ValidationError, OSError) as error:
        logging.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
