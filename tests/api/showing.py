"""Shows lines without an end to an API that may not have subscribed yet."""

from collections.abc import Generator
from contextlib import contextmanager
import threading

from tests.api.service import ApiFixture
from torchyard.contract.telemetry.views import LiveLine


@contextmanager
def shown(service: ApiFixture, lines: list[LiveLine]) -> Generator[None]:
    """Shows the lines again and again, as nothing stores them for an API that has not subscribed yet."""
    heard = threading.Event()

    def show() -> None:
        while not heard.wait(0.05):
            service.queue.show(lines)

    thread = threading.Thread(target=show)
    thread.start()
    try:
        yield
    finally:
        heard.set()
        thread.join()
