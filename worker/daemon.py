"""The daemon of one host: its parts, and the loop that starts jobs. docs/code.md lists its threads."""

from collections.abc import Callable
import logging
import threading
import time

from torchyard.contract.errors import ConfigError, Conflict, NotMigrated, Unavailable
from worker.aside import Aside
from worker.attempts.context import WorkerContext
from worker.attempts.keep.asked import AskedFiles
from worker.attempts.runners import AttemptRunners
from worker.cleanup.housekeeper import Housekeeper
from worker.devices.health import Health
from worker.duties import Duties, Duty, Interval
from worker.engines.base import Engine
from worker.keeping import Keeper
from worker.leases import Leases
from worker.monitor import DeviceMonitor
from worker.observation import Observation
from worker.outage import Outage, level_of
from worker.placement.postponed import QUIET_S, Postponed
from worker.pools import Pool
from worker.registration import HostRegistration, PoolRegistration, Registration
from worker.sandbox import levels
from worker.service import Service, Wakeups
from worker.settings import Settings
from worker.troubles import Troubles
from worker.watch import Turns

_CLAIM_INTERVAL_S, _WAKEUP_WAIT_S, _STOPPING_WAKEUP_WAIT_S = 2.0, 1.0, 0.1
_ENDING_WAIT_S = 0.1
"""How long a wake-up waits for an attempt that is about to end, and has probably caused it: one pass serves both."""
_IDLE_FACTOR, _FULL_FACTOR = 1, 10
"""Pause as long as the last pass took, and longer while all devices are in use: no job starts before one ends."""
_REST_FACTOR = 300
_LONGEST_REST_S = 10.0
"""A pass that nothing has caused comes so many times later than the last one took, but no later than this."""
_SHUTDOWN_S, _LEAVE_S = 45.0, 10.0
_HANGING_S = 2.0
"""How long the end of a daemon waits for a thread whose call may hang."""
_SWEEP_INTERVAL_S, _DRAIN_CHECK_INTERVAL_S = 10.0, 2.0
_ERROR_REST_S, _LONGEST_ERROR_REST_S = 1.0, 8.0
"""Pause after an unexpected error of the loop: the first, and the longest after more in a row."""
_ERROR_LOOK_S = 0.1
_TURN, _PASS = "a turn of the daemon", "the pass over the line"

logger = logging.getLogger(__name__)


class Daemon:
    """One worker. `serve` returns after `leave` or `stop_jobs` was called and has been carried out."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        service: Service,
        *,
        health: Health | None = None,
        pool: Pool | None = None,
        lacking: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`service`: closed by `serve`. `pool`: what it serves instead of its host's devices.

        `lacking`: which GPUs of the host it cannot offer, and why.
        """
        self._clock = clock
        self._service = service
        self._verbs = service.verbs
        self.id = service.verbs.worker_id
        offer = None if pool is None else pool.report
        isolation = (engine.starts().isolation or levels.OFF) if pool is None else pool.isolation
        context = WorkerContext.of(
            settings, engine, self._verbs, health=health, isolation=isolation, pool=offer, service=service.address
        )
        self._runners = AttemptRunners(context)
        self._troubles = Troubles()
        if lacking is not None:
            logger.error("%s", lacking)
            self._troubles.note_failure("the look for GPUs at the start", ConfigError(lacking))
        capacity = settings.capacity if pool is None else None
        self._devices = DeviceMonitor(
            engine, self._runners, name=service.name, runs=settings.runs, capacity=capacity, clock=clock
        )
        self._seen = Observation(
            self._devices,
            identity=settings.identity,
            troubles=self._troubles,
            looked=lambda: self._keeper.report_soon(),  # noqa: PLW0108 it is made below
            clock=clock,
        )
        self._leases = Leases(self._verbs, self._runners, clock=clock, in_pool=pool is not None)
        self._cluster = service.duties(self._runners, clock=clock)
        self._claiming = threading.Lock()
        """Held while jobs are claimed. What removes run directories waits meanwhile."""
        self._housekeeper = Housekeeper(
            settings.home,
            self._verbs.folders,
            duties=self._cluster,
            retention=settings.retention,
            in_use=self._runners.in_use,
            troubles=self._troubles,
            claiming=self._claiming,
            clock=clock,
        )
        self._registration = self._registration_of(settings, pool)
        self._draining = self._stopping = self._leaving = self._others_ended = False
        # No job starts before others' attempts, which an earlier daemon has left, were ended.
        self._drain_interval = Interval(_DRAIN_CHECK_INTERVAL_S, clock)
        self._duties = self._duties_of(
            ("the sweep", Interval(_SWEEP_INTERVAL_S, clock), self._sweep),
            ("the look whether this worker drains", self._drain_interval, self._check_drain),
        )
        self._asked = AskedFiles(settings.runs, self._verbs, limits=settings.output_limits, clock=clock)
        self._cleaner = self._cleaner_of()
        self._turns = Turns("the thread that starts jobs")
        self._keeper = self._keeper_of()
        self._placing = service.placing
        self._no_wakeups = Outage(meanwhile="polling instead", over="wake-ups come again")
        self._postponed = Postponed()
        self._forecaster = service.forecasts(self._seen.known, clock=clock)
        self._claim_interval = Interval(_CLAIM_INTERVAL_S, clock)
        self._deadline: float | None = None
        """Until when jobs may take to save themselves, once they are stopped."""
        self._woken: bool | None = None
        """What the last wait returned."""

    @property
    def name(self) -> str:
        """The name that the worker was given, or wants to have."""
        return self._devices.name

    def leave(self) -> None:
        """Has `serve` return while the jobs go on under their supervisors. Safe in a signal handler."""
        self._leaving = True

    def stop_jobs(self) -> None:
        """Has `serve` return after the running jobs were saved and requeued. Safe in a signal handler."""
        self._stopping = True

    def serve(self) -> None:
        """Works until asked to stop."""
        wakeups = self._service.wakeups()
        try:
            self._register()
            self._loop(wakeups)
        finally:
            self._runners.detach(_LEAVE_S, clock=self._clock)
            self._keeper.stop(_LEAVE_S)
            self._housekeeper.stop(_LEAVE_S)
            for aside in (self._cleaner, self._seen.aside):
                aside.stop(_HANGING_S)
            self._forecaster.leave()
            self._registration.release()
            wakeups.close()
            self._service.close()

    def _registration_of(self, settings: Settings, pool: Pool | None) -> Registration:
        if pool is not None:
            return PoolRegistration(pool, store=self._verbs, seen=self._seen, troubles=self._troubles)
        return HostRegistration(
            store=self._verbs,
            devices=self._devices,
            seen=self._seen,
            housekeeper=self._housekeeper,
            troubles=self._troubles,
            shares_cpus=settings.cpu_slots is None,
        )

    def _cleaner_of(self) -> Aside:
        sweep = "the housekeeping", Interval(_SWEEP_INTERVAL_S, self._clock), self._housekeeper.sweep
        duties, turns = self._duties_of(sweep, self._asked.duty), Turns("the housekeeping")
        return Aside(turns, lambda _: duties.run_due(), troubles=self._troubles, last=self._asked.close)

    def _keeper_of(self) -> Keeper:
        return Keeper(
            self._leases,
            self._registration,
            self._runners,
            troubles=self._troubles,
            database_was_away=self._cluster.database_was_away,
            threads=(self._turns, self._seen.aside.turns, self._cleaner.turns, self._housekeeper.turns),
            clock=self._clock,
        )

    def _duties_of(self, *schedule: Duty) -> Duties:
        return Duties(schedule, troubles=self._troubles, database_was_away=self._cluster.database_was_away)

    def _sweep(self) -> None:
        self._cluster.rescue_expired()
        self._leases.continue_lost()
        self._cluster.sweep()

    def _check_drain(self) -> None:
        draining = self._verbs.is_draining()
        if draining != self._draining:
            self._draining = draining
            logger.info("this worker %s", "drains and gives its jobs back" if draining else "takes jobs again")

    def _register(self) -> None:
        """Registers the worker as soon as the database answers, and adopts the attempts of an earlier daemon.

        Waits while another daemon serves its pool. Raises NotMigrated, and ConfigError if the database and the blobs
        are not those of one service.
        """
        logged = ""
        while not self._leaving and not self._stopping:
            try:
                registered = self._registration.register()
            except NotMigrated:
                raise
            except (Unavailable, Conflict) as error:
                if error.message != logged:
                    logger.log(level_of(error), "%s; trying again", error.message)
                logged = error.message
                self._turns.note()
                self._runners.ended.wait(_WAKEUP_WAIT_S)
                continue
            self._devices.name = registered.name
            self._runners.adopt(registered.claims)
            self._seen.adopted()
            self._others_ended = False
            self._keeper.start()
            self._cleaner.start()
            return

    def _stand_by(self) -> None:
        """Leaves all attempts to the daemon that serves the pool now, and waits until that one is gone."""
        logger.warning("another daemon serves the pool %s now; this one waits", self.name)
        self._forecaster.forget()
        self._runners.abandon_all()
        while self._runners and not self._leaving and not self._stopping:
            self._runners.ended.wait(_WAKEUP_WAIT_S)
            self._turns.note()
            self._reap()
        self._register()

    def _loop(self, wakeups: Wakeups) -> None:
        """Takes turns until the daemon leaves or has stopped its jobs, whatever error a turn meets."""
        while not self._leaving:
            try:
                if self._stopping and self._has_stopped():
                    return
                self._take_turn(wakeups)
            except (NotMigrated, ConfigError):
                raise
            except Exception as error:
                logger.exception("%s failed; continuing", _TURN)
                self._rest_after_error(self._troubles.note_failure(_TURN, error))
            else:
                self._troubles.note_success(_TURN)

    def _take_turn(self, wakeups: Wakeups) -> None:
        self._turns.note()
        self._duties.run_due()
        if self._registration.superseded:
            self._stand_by()
            return
        attempt_ended = self._reap()
        if self._stopping or self._draining:
            self._runners.preempt(urgent=self._stopping)
        early = attempt_ended or self._postponed.is_due(self._clock())
        if not self._stopping and self._claim_interval.due(early=early):
            with self._troubles.noted(_PASS):
                took = self._claim()
                if took is not None and self._woken is not None:
                    self._claim_interval.rest(min(_REST_FACTOR * took, _LONGEST_REST_S))
        self._woken = self._wait(wakeups)
        if self._woken or self._runners.ended.is_set():
            self._claim_interval.make_due()
            self._forecaster.notice()
        else:
            self._forecast()

    def _has_stopped(self) -> bool:
        """Returns whether all jobs have stopped, or have had their time to."""
        self._deadline = self._deadline or self._clock() + _SHUTDOWN_S
        return not self._runners or self._registration.superseded or self._clock() > self._deadline

    def _rest_after_error(self, times: int) -> None:
        """Pauses for longer after each error in a row, but no longer than until the daemon is to leave or to stop."""
        ends = self._clock() + min(_ERROR_REST_S * 2.0 ** min(times - 1, 10), _LONGEST_ERROR_REST_S)
        was_stopping = self._stopping
        while self._clock() < ends and not self._leaving and self._stopping == was_stopping:
            time.sleep(_ERROR_LOOK_S)

    def _forecast(self) -> None:
        """Does a slice of the estimates. Not while jobs start one after the other: they would be old at once."""
        if self._stopping or self._draining:
            self._forecaster.leave()
        elif not self._postponed.pending:
            self._forecaster.work(self._is_idle)

    def _is_idle(self) -> bool:
        return not (self._runners.ended.is_set() or self._stopping or self._leaving)

    def _reap(self) -> bool:
        """Forgets the attempts that are closed. Returns whether an attempt has ended since the last call."""
        attempt_ended = self._runners.ended.is_set()
        self._runners.ended.clear()
        self._runners.reap(_LEAVE_S, note=self._seen.note_use)
        return attempt_ended

    def _claim(self) -> float | None:
        """Passes over the line. Returns how many seconds that took; None if another one should follow soon.

        So it is if jobs were claimed, if it was cut short, and if it has left out jobs that might start.
        """
        began = self._clock()
        claimed = full = False
        may_postpone = self._postponed.may_postpone(began)
        try:
            if not self._others_ended:
                self._others_ended = self._leases.end_others()
            if self._placing.anything_waits():
                devices = self._seen.look_now()
                if devices is None:
                    return None
                full = self._runners.have_all(devices)
                with self._claiming:
                    for claim in self._placing.claims(
                        devices,
                        running=self._runners.all_ids(),
                        may_claim=self._may_claim,
                        may_postpone=may_postpone,
                    ):
                        self._runners.start(claim)
                        claimed = True
        except Unavailable as error:
            logger.log(level_of(error), "%s", error.message)
            self._cluster.database_was_away()
            return None
        finally:  # after an error too: the next pass comes after its interval, and does all of it
            if claimed and may_postpone:
                self._postponed.note_postponed(began)
            else:
                self._postponed.note_done()
        if claimed:
            return None
        took = self._clock() - began
        # Each submission wakes the worker, and a pass over many different requests takes long.
        self._runners.ended.wait(min((_FULL_FACTOR if full else _IDLE_FACTOR) * took, _WAKEUP_WAIT_S))
        return None if self._placing.has_more and not full else took

    def _may_claim(self) -> bool:
        if self._stopping or self._leaving or not self._leases.fresh or self._seen.obstacle is not None:
            return False
        return self._leases.confirm()

    def _wait(self, wakeups: Wakeups) -> bool | None:
        """Waits for a wakeup or for the end of an attempt. Returns whether a wakeup came; None if Redis is away."""
        woken = False
        try:
            if not self._runners.ended.is_set():
                woken = wakeups.wait(self._longest_wait())
                self._no_wakeups.end()
        except Unavailable as error:
            self._no_wakeups.note(error)
            self._wait_without_wakeups()
            self._runners.recheck_intents()
            return None
        if woken and wakeups.asked:
            self._runners.recheck_intents()
            self._drain_interval.make_due()
            self._asked.interval.make_due()
        elif woken and self._runners.any_ending():
            self._runners.ended.wait(_ENDING_WAIT_S)
        return woken

    def _wait_without_wakeups(self) -> None:
        ends = self._clock() + _WAKEUP_WAIT_S
        while (left := ends - self._clock()) > 0:
            if self._runners.ended.wait(min(left, self._longest_wait())) or self._stopping:
                return
            self._forecast()

    def _longest_wait(self) -> float:
        """Returns for how many seconds to wait for a wake-up if none comes."""
        if self._stopping:
            return _STOPPING_WAKEUP_WAIT_S
        if self._postponed.pending:
            return QUIET_S
        return min(_WAKEUP_WAIT_S, self._forecaster.due_in())
