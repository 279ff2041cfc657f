"""`python -P -m controller`: does what is due without a request, configured by `TORCHYARD_*` variables.

Several may run at once. SIGTERM and SIGINT stop it with exit code 0.
"""

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
    from store.store import Store


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    make_files_private()
    try:
        inspection.forbid()
        settings = Settings.load()
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
