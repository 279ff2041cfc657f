"""Stores what one attempt writes, in a thread of its own: a file or a blob store that hangs holds up nothing else."""

import contextlib
from datetime import timedelta
import time

from store.worker.records import AttemptFacts
from worker.aside import Aside
from worker.attempts.context import AttemptContext
from worker.attempts.devices import StrayMemoryWatch
from worker.attempts.output.recorder import OutputRecorder, output_of
from worker.attempts.phases import Drained, Undrained
from worker.attempts.stacks import StacksAnswerer
from worker.engines.base import Handle

_TURN_S = 0.25
"""So long, the runner waits for the thread. What takes longer goes on while the runner takes its next turns."""
_CLOSE_S = 2.0


class Reading:
    """The runner's thread calls every method but `look_for_stray_memory`.

    What the thread raises, `take_turn` and `take_last_turn` raise.
    """

    def __init__(self, attempt: AttemptContext) -> None:
        self._attempt = attempt
        self._facts: AttemptFacts | None = None
        self._handle: Handle | None = None
        self._stray: StrayMemoryWatch | None = None
        self._stacks = StacksAnswerer(attempt.worker.engine, attempt.records)
        self._stacks_requested_at: int | None = None
        self._output: OutputRecorder | None = None
        self._is_new = False
        """Whether nothing was stored since the attempt is followed."""
        self._has_stored = False
        """Whether something was stored since `take_turn` has returned so."""
        self._ended_at: float | None = None
        """Since when all processes have ended."""
        self._completed = False
        self._drained = False
        self._error: Exception | None = None
        self._aside = Aside(attempt.instructions.reading_turns, lambda _: self._step(), last=self._discard)

    @property
    def has_more(self) -> bool:
        """Whether there is more that could be stored at once."""
        return self._output is not None and self._output.has_more

    @property
    def answers_stacks(self) -> bool:
        """Whether the ranks were asked for their stacks, and the answer is not stored yet."""
        return self._stacks.collecting

    def start(self) -> None:
        """Starts the thread, which stores nothing yet. Raises RuntimeError if the system has none left."""
        self._aside.start()

    def follow(self, handle: Handle, facts: AttemptFacts) -> None:
        """Begins with an attempt that was started. The thread also stores when it is not asked, once a second."""
        self._stray = StrayMemoryWatch(self._attempt.worker.engine, self._attempt.notices, facts.devices)
        self._handle, self._is_new = handle, True
        self._facts = facts

    def store_setup_log(self, facts: AttemptFacts) -> None:
        """Stores what the set-up has written by now."""
        self._facts = facts
        self.take_turn()

    def take_turn(self, *, stacks_requested_at: int | None = None) -> bool:
        """Has the thread store what one turn may take, and go on with the newest request for stacks.

        Waits a moment for it. Returns whether anything was stored since the last call.
        """
        self._stacks_requested_at = stacks_requested_at
        self._aside.ask(wait_s=_TURN_S)
        self._raise_error()
        stored, self._has_stored = self._has_stored, False
        return stored

    def take_last_turn(self, *, completed: bool) -> Drained | Undrained:
        """Has the thread store the next part of what is left, after all processes have ended. Waits a moment for it.

        `completed`: whether they have ended with success.
        """
        self._completed = completed
        self._ended_at = self._ended_at or time.monotonic()
        self._aside.ask(wait_s=_TURN_S)
        self._raise_error()
        if self._drained:
            return Drained()
        failures = 0 if self._output is None else self._output.failures
        return Undrained(failures, timedelta(seconds=time.monotonic() - self._ended_at))

    def look_for_stray_memory(self) -> None:
        """Asks the driver what the ranks hold on each other's devices. The thread of the observation calls it."""
        if self._handle is not None and self._stray is not None and self._ended_at is None:
            self._stray.look(self._handle)

    def close(self) -> None:
        """Has the thread store nothing more, and end. If it hangs, it ends later."""
        self._attempt.records.close()
        self._aside.stop(_CLOSE_S)

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _step(self) -> None:
        if self._facts is None or self._drained:
            return
        try:
            self._store(self._facts)
        except Exception as error:  # noqa: BLE001 the runner raises it
            self._error = error

    def _store(self, facts: AttemptFacts) -> None:
        output = self._output = self._output or self._open(facts)
        if self._handle is not None and self._is_new:
            output.remove_checkpoint_copies()
            self._is_new = False
        if self._ended_at is not None:
            self._drained = output.store_rest(completed=self._completed)
            return
        self._has_stored = output.store_some() or self._has_stored
        if self._handle is not None and self._stray is not None:
            self._stacks.take_turn(self._handle, self._stacks_requested_at)
            self._stray.tell()

    def _open(self, facts: AttemptFacts) -> OutputRecorder:
        attempt, worker = self._attempt, self._attempt.worker
        return output_of(
            facts,
            number=attempt.key.number,
            run=attempt.run,
            blobs=worker.store.blobs,
            limits=worker.limits,
            records=attempt.records,
            notices=attempt.notices,
            folder_lasts=worker.folder_lasts,
            arrived=attempt.instructions.wake,
        )

    def _discard(self) -> None:
        if self._output is not None:
            with contextlib.suppress(OSError):  # the remains of a copy are removed after a day
                self._output.close()
