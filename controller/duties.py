"""The duties of a controller, in the order in which one pass does them."""

from controller.dependencies import Dependencies
from controller.duty import Duty
from controller.heartbeat import Heartbeat
from controller.idle import Idle
from controller.notifications.deliver import Deliveries, FanOut, Upkeep
from controller.schedules import Schedules
from controller.settings import Settings
from controller.sweeps.duty import Sweeps
from controller.warnings import Warnings
from store.store import Store


def duties_of(store: Store, settings: Settings) -> list[Duty]:
    """Returns all that a controller does."""
    return [
        Dependencies(store),
        Schedules(store),
        Sweeps(store),
        Warnings(store),
        Idle(store, settings.max_idle_timeout),
        FanOut(store),
        Deliveries(store, settings),
        Upkeep(store),
        Heartbeat(store),
    ]
