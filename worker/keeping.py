"""Renews leases and sends heartbeats, in a thread that talks to the database alone.

It touches no disk, no driver and no process. So whatever hangs on this host, no attempt is lost that still goes on.
"""

from collections.abc import Callable, Sequence

from worker.aside import Aside
from worker.attempts.runners import AttemptRunners
from worker.duties import Duties, Interval
from worker.leases import Leases
from worker.registration import Registration
from worker.troubles import Troubles
from worker.watch import Turns, Watch

_RENEW_INTERVAL_S = 10.0
_HEARTBEAT_INTERVAL_S = 8.0
"""Without news of the devices. Otherwise it is sent as soon as there are some, every 5 s."""


class Keeper:
    """`threads`: those that are watched besides the attempts'."""

    def __init__(
        self,
        leases: Leases,
        registration: Registration,
        runners: AttemptRunners,
        *,
        troubles: Troubles,
        database_was_away: Callable[[], object],
        threads: Sequence[Turns],
        clock: Callable[[], float],
    ) -> None:
        self._leases = leases
        self._registration = registration
        self._runners = runners
        self._troubles = troubles
        self._threads = threads
        self._watch = Watch()
        self._heartbeat = Interval(_HEARTBEAT_INTERVAL_S, clock)
        self._duties = Duties(
            (
                ("the renewal of leases", Interval(_RENEW_INTERVAL_S, clock), leases.renew),
                ("the heartbeat", self._heartbeat, registration.report),
            ),
            troubles=troubles,
            database_was_away=database_was_away,
        )
        self._aside = Aside(Turns("the thread of the leases"), self._step, troubles=troubles)

    def start(self) -> None:
        """Begins to renew and to report, unless it has begun. The worker must be registered."""
        self._aside.start()

    def stop(self, timeout: float) -> None:
        self._aside.stop(timeout)

    def report_soon(self) -> None:
        """Has the next heartbeat be sent at once."""
        self._heartbeat.make_due()
        self._aside.ask()

    def _step(self, _asked: bool) -> None:
        self._watch.look([*self._threads, *self._runners.turns()])
        self._runners.give_up_lost(self._watch)
        self._troubles.note_silent(self._watch.silent())
        self._duties.run_due()
