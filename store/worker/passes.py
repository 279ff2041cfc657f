"""Passes over the line for workers that ask the service: one plan serves all that ask while another one is made."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
import threading

from store.store import Store
from store.worker.placing import Placer
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.errors import Unavailable
from torchyard.contract.wire.units import LONGEST_STOP_GRACE


@dataclass(eq=False)
class _Ask:
    worker_id: str
    devices: Sequence[DeviceReport]
    done: bool = False
    error: Exception | None = None


class SharedPasses:
    """Threads share it. One of those that ask makes a pass for all of them, and the others wait."""

    def __init__(self, store: Store, *, max_stop_grace: timedelta = LONGEST_STOP_GRACE) -> None:
        self._placer = Placer(store, max_stop_grace=max_stop_grace)
        self._changed = threading.Condition()
        self._asks: list[_Ask] = []
        self._passing = False

    def claim(self, worker_id: str, devices: Sequence[DeviceReport]) -> None:
        """Claims jobs that may start on the worker now. What it got is among its open attempts.

        So an answer that is lost loses no attempt: who asks again finds it there. Raises Unavailable.
        """
        ask, asks = _Ask(worker_id, devices), list[_Ask]()
        with self._changed:
            self._asks.append(ask)
            self._changed.wait_for(lambda: ask.done or not self._passing)
            if not ask.done:
                asks, self._asks = self._asks, []
                self._passing = True
        if asks:
            self._pass_for(asks)
        if ask.error is not None:
            raise ask.error

    def _pass_for(self, asks: Sequence[_Ask]) -> None:
        error: Exception | None = Unavailable("the pass over the line was cut short")
        try:
            if self._placer.anything_waits():
                observed = {ask.worker_id: ask.devices for ask in asks}
                for _ in self._placer.claims(observed, may_claim=lambda: True):
                    pass
            error = None
        except Exception as raised:  # noqa: BLE001 each of those that ask raises it
            error = raised
        finally:
            with self._changed:
                for ask in asks:
                    ask.done, ask.error = True, error
                self._passing = False
                self._changed.notify_all()
