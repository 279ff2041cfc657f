"""`python -P -m controller`: does what is due without a request, configured by `TORCHYARD_*` variables.

Several may run at once. SIGTERM and SIGINT stop it with exit code 0. With `--check` it only looks whether one has done
its duties within the last minute, for a health check.
"""

import argparse
import logging
import signal
import sys

from torchyard.contract.errors import TorchyardError
from torchyard.host import inspection
from torchyard.host.collector import paused
from torchyard.host.datadir import enter_empty_folder, make_files_private

with paused():
    from controller.duties import duties_of
    from controller.loop import Controller
    from controller.settings import Settings
    from store import probe
    from store.store import Store


_SILENT_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="controller", description="Does what is due without a request.")
    parser.add_argument("--check", action="store_true", help="only say whether one runs, by the exit code")
    check = parser.parse_args().check
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    make_files_private()
    try:
        inspection.forbid()
        settings = Settings.load()
        if check:
            age_s = probe.controller_age_s(settings.database)
            return 0 if age_s is not None and age_s <= _SILENT_S else 1
        store = Store.of(settings, program="torchyard-controller")
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        enter_empty_folder(settings.root)
        _serve(Controller(store, duties_of(store, settings)))
        store.close()
    except (TorchyardError, OSError) as error:
        logging.error("%s", error)
        return 1
    return 0


def _serve(controller: Controller) -> None:
    def stop(*_: object) -> None:
        controller.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    controller.serve()


if __name__ == "__main__":
    sys.exit(main())
