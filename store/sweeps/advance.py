"""What a controller does with the trials of sweeps, guarded by the row of the sweep: several controllers may try.

All of them do nothing for a sweep that is gone or has changed meanwhile.
"""

from collections.abc import Mapping, Sequence
import time

from sqlalchemy.orm import Session

from store.jobs import jobs, resume
from store.jobs import stop as stopping
from store.jobs.submission import Submission, Submitted, TrialOf
from store.jobs.submit import submit_each
from store.sweeps import due, sweeps, trials
from store.tables import Sweep
from store.team import users
from store.team.callers import Caller
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.errors import (
    Conflict,
    InvalidSpec,
    NotFound,
    OwnerDisabled,
    QuotaExceeded,
    TorchyardError,
    kept,
)
from torchyard.contract.states import AT_RUNG, JobState, Reason
from torchyard.contract.sweeps.points import spec_of
from torchyard.contract.sweeps.spec import Point, SweepState
from torchyard.contract.wire.text import shown_text

MOST = 50
"""The most trials that one transaction makes or asks: others can write after them."""
_PARSE_S = 0.2
"""How long one transaction parses job specs: large ones are made in smaller portions."""

_TOO_MANY_FAILED = "too_many_failed"
_FAILED_STEP = Reason("internal", "a step of the sweep failed and is retried: see the controller's log")


class OnlyFirst(Exception):
    """Only so many of the trials can be made: undo the transaction, as it has made others, and make these."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def make_trials(session: Session, sweep_id: str, points: Sequence[Point], *, first: int) -> bool:
    """Makes the trials of these points, of which the first has the number `first`. Returns whether it made any.

    Each with its job, exactly once: only while the sweep runs and `first` is its next number. A quota that is used up
    is waited for, a sweep whose owner may submit nothing is paused, and a job that is refused is a failed trial: also
    one that its owner's quota never allows. Raises OnlyFirst.
    """
    sweep = _lock(session, sweep_id)
    return sweep is not None and _is_next(sweep, first) and _make_next(session, sweep, points)


def ask_jobs(session: Session, sweep_id: str) -> bool:
    """Pauses, resumes or cancels the jobs of some trials, as was asked of the sweep. Returns whether it did."""
    sweep = _lock(session, sweep_id)
    if sweep is None or sweep.asked is None:
        return False
    some = due.list_to_ask(session, sweep, limit=MOST)
    for job_id in sorted(job_id for _, job_id in some):
        _ask_job(session, sweep.asked, job_id)
    more = len(some) == MOST
    sweeps.change(session, sweep, asked=sweep.asked if more else None, asked_to=some[-1][0] + 1 if more else 0)
    return True


def stop_failing(session: Session, sweep_id: str) -> bool:
    """Stops a sweep of which too many trials have failed. Returns whether it did."""
    sweep = _lock(session, sweep_id)
    most = None if sweep is None else sweep.spec.get("max_failed")
    if sweep is None or most is None or sweep.state != SweepState.RUNNING:
        return False
    failed = due.count_failed(session, sweep_id)
    if failed < most:
        return False
    reason = Reason(_TOO_MANY_FAILED, f"{failed} trials have failed, and max_failed is {most}")
    sweeps.move(session, sweep, SweepState.CANCELLING, reason=reason, asked="cancel", asked_to=0)
    return True


def promote_trials(session: Session, sweep_id: str, wanted: Mapping[int, int]) -> bool:
    """Has trials go on that wait at a rung, each to the rung that `wanted` has for its number. Returns whether any did.

    As `make_trials` does, it waits for a quota, and pauses a sweep whose owner may submit nothing.
    """
    sweep = _lock(session, sweep_id)
    halving = None if sweep is None else sweeps.read_spec(sweep).halving
    if sweep is None or halving is None or sweep.state != SweepState.RUNNING or sweep.asked is not None:
        return False
    caller = _find_owner(session, sweep)
    if caller is None:
        return False
    done, reason = False, sweeps.STARTED
    for number, job_id in due.list_waiting(session, sweep_id):
        try:
            if number in wanted:
                done |= resume.promote(session, job_id, PausePoint(halving.unit, wanted[number]), caller)
        except QuotaExceeded as error:
            reason = _reason_to_wait(error)
    sweeps.set_reason(session, sweep, reason)
    return done


def settle(session: Session, sweep_id: str) -> bool:
    """Ends a sweep of which all trials have ended, or stops those that wait at a rung. Returns whether it did."""
    sweep = _lock(session, sweep_id)
    if sweep is None or sweep.asked is not None:
        return False
    if sweep.state == SweepState.RUNNING and sweep.next_number == sweep.total and _stop_early(session, sweep):
        return True
    if sweeps.count_open_trials(session, sweep_id):
        return False
    if sweep.state == SweepState.CANCELLING:
        failed = sweep.reason_code == _TOO_MANY_FAILED
        end, reason = SweepState.FAILED if failed else SweepState.CANCELLED, sweeps.read_reason(sweep)
    elif sweep.state == SweepState.RUNNING and sweep.next_number == sweep.total:
        end, reason = SweepState.FINISHED, Reason("finished", "all trials have ended")
    else:
        return False
    sweeps.move(session, sweep, end, reason=reason)
    return True


def note_failed_step(session: Session, sweep_id: str) -> None:
    """Has the sweep say that a step of it failed. It says so until a step makes trials, or has them go on."""
    sweep = _lock(session, sweep_id)
    if sweep is None or SweepState(sweep.state).ended:
        return
    reason = _FAILED_STEP
    if sweep.state == SweepState.CANCELLING:  # its code says how it ends
        before = sweep.reason_message.removesuffix(f"; {reason.message}")
        reason = Reason(sweep.reason_code, f"{before}; {reason.message}")
    sweeps.set_reason(session, sweep, reason)


def _lock(session: Session, sweep_id: str) -> Sweep | None:
    try:
        return sweeps.lock(session, sweep_id)
    except NotFound:
        return None


def _is_next(sweep: Sweep, first: int) -> bool:
    return sweep.state == SweepState.RUNNING and sweep.asked is None and sweep.next_number == first


def _find_owner(session: Session, sweep: Sweep) -> Caller | None:
    """Returns the sweep's owner. Pauses the sweep, and returns None, if the owner may submit nothing."""
    try:
        return users.act_for(session, sweep.owner)
    except OwnerDisabled as error:
        sweeps.move(session, sweep, SweepState.PAUSED, reason=Reason(error.code, error.message))
        return None


def _stop_early(session: Session, sweep: Sweep) -> bool:
    """Cancels some trials that wait at a rung, if none can come to one any more. Returns whether it did."""
    if due.count_running(session, sweep.id):
        return False
    waiting = due.list_waiting(session, sweep.id)[:MOST]
    for _, job_id in waiting:
        job = jobs.lock(session, job_id)
        if job is not None and job.pause_at is not None:
            reason = Reason("stopped_early", f"stopped early, after {PausePoint.of(job.pause_at)}")
            jobs.transition(session, job_id, JobState.CANCELLED, reason=reason, locked=job)
    return bool(waiting)


def _make_next(session: Session, sweep: Sweep, points: Sequence[Point]) -> bool:
    caller = _find_owner(session, sweep)
    if caller is None:
        return False
    first = sweep.next_number
    answers = _submit(session, sweep, dict(enumerate(points[: sweep.total - first], start=first)), caller)
    full = next((number for number, each in answers.items() if _has_to_wait(each)), None)
    if full is not None and any(number > full and isinstance(each, Submitted) for number, each in answers.items()):
        raise OnlyFirst(max(full - first, 1))
    done = {number: each for number, each in answers.items() if full is None or number < full}
    if done:
        trials.add(session, sweep.id, [_row_of(number, points[number - first], each) for number, each in done.items()])
        sweeps.change(session, sweep, next_number=first + len(done))
    sweeps.set_reason(session, sweep, sweeps.STARTED if full is None else _reason_to_wait(answers[full]))
    return bool(done)


def _submit(
    session: Session, sweep: Sweep, points: dict[int, Point], caller: Caller
) -> dict[int, Submitted | Exception]:
    """Stores the jobs of the first trials for which there is time. Raises what is no refusal.

    Returns each, or why it was refused, in order.
    """
    spec, answers = sweeps.read_spec(sweep), dict[int, Submitted | Exception]()
    wanted: dict[int, Submission] = {}
    ends = time.monotonic() + _PARSE_S
    for number, point in points.items():
        if (wanted or answers) and time.monotonic() > ends:
            break
        try:
            job, trial = spec_of(spec, number, point), TrialOf(sweep.id, number)
            wanted[number] = Submission(job, caller, sweeps.read_visibility(sweep), trial=trial)
        except InvalidSpec as error:
            answers[number] = kept(error)
    if wanted:
        answers |= submit_each(session, wanted)
    if spec.halving is not None:
        point = PausePoint(spec.halving.unit, spec.halving.rungs[0])
        jobs.pause_at(session, [each.job.id for each in answers.values() if isinstance(each, Submitted)], point)
    for each in answers.values():
        if isinstance(each, Exception) and not isinstance(each, TorchyardError):
            raise each
    return dict(sorted(answers.items()))


def _row_of(number: int, point: Point, answer: Submitted | Exception) -> dict[str, object]:
    if isinstance(answer, Submitted):
        return {"number": number, "point": point, "job_id": answer.job.id, "outcome": None, "error": None}
    return {"number": number, "point": point, "job_id": None, "outcome": JobState.FAILED, "error": _message_of(answer)}


def _message_of(error: Exception) -> str:
    errors = error.errors if isinstance(error, TorchyardError) else ()
    return shown_text("; ".join([str(error), *(f"{each.field}: {each.message}" for each in errors[:5])]))


def _has_to_wait(answer: Submitted | Exception) -> bool:
    return isinstance(answer, QuotaExceeded) and answer.may_pass


def _reason_to_wait(error: Submitted | Exception) -> Reason:
    assert isinstance(error, QuotaExceeded)
    return Reason(error.code, f"waits for room: {error.message}")


def _ask_job(session: Session, asked: str, job_id: str) -> None:
    job = jobs.lock(session, job_id)
    if job is None or JobState(job.state).terminal:
        return
    is_paused = job.state == JobState.PAUSED
    try:
        if asked == "cancel":
            stopping.request_cancel(session, job_id)
        elif asked == "pause" and not is_paused:
            stopping.request_pause(session, job_id)
        elif asked == "resume" and not (is_paused and job.reason_code == AT_RUNG):
            resume.resume(session, job_id)
    except (Conflict, QuotaExceeded):
        return  # it is being cancelled, or has no room: the job says so
