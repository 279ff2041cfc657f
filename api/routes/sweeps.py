"""Submits, lists, shows, changes and deletes sweeps, and ranks their trials."""

from collections.abc import Generator, Iterable
from functools import partial
import re
import time
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.background import BackgroundTask
from starlette.responses import Response

from api.auth.access import Access, AccessDep
from api.auth.callers import JobReader, JobWriter, Principal, authenticate
from api.openapi import bodies
from api.openapi.completion import headers, problems
from api.openapi.routers import guarded
from api.parameters.bodies import Body
from api.parameters.idempotency import Keyed
from api.parameters.paging import AfterNumber, AfterSweep, Limit, id_after, number_after, page_of_views
from api.parameters.reads import Parts, in_turns, writes_in_turns
from api.routes.jobs import collect_garbage
from api.services import Services, ServicesDep
from store.sweeps import listing, requests, submit
from store.sweeps.facts import NewSweep, SweepFilter, TrialFacts
from store.sweeps.listing import TrialSort
from torchyard.contract.errors import Conflict, NotFound, QuotaExceeded, TooLarge, Unavailable
from torchyard.contract.jobs.filters import Text
from torchyard.contract.spec.maximums import within
from torchyard.contract.spec.spec import Spec
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.points import added_points, checked_points, extended, resolved, spec_of
from torchyard.contract.sweeps.spec import MOST_POINTS, MOST_SWEEP_BYTES, Point, SweepExtension, SweepSpec, SweepState
from torchyard.contract.sweeps.views import SweepResolved, SweepSummary, SweepView, TrialView
from torchyard.contract.wire.view import Page

router = guarded("sweeps", Unavailable)


async def _number(sweep_id: str, number: str) -> int:
    """Raises NotFound for what is no trial's number."""
    if re.fullmatch("0|[1-9][0-9]{0,8}", number) is None:
        raise NotFound(f"sweep {sweep_id[:100]} has no trial {number[:100]!r}")
    return int(number)


_SWEEP_EXAMPLE = {
    "parameters": {"config.optimizer.lr": [0.1, 0.01, 0.001], "config.training.seed": "1..3"},
    "max_parallel": 4,
    "job": {"trainer": "image-classification", "config": {"data": {"source": "digits"}}},
}


@bodies.declares(bodies.json(SweepSpec, example=_SWEEP_EXAMPLE))
async def _parse_sweep(
    services: ServicesDep, access: AccessDep, caller: Annotated[Principal, Depends(authenticate)], body: Body
) -> SweepSpec:
    """Parses a sweep. Raises TooLarge, as `Parser` does, and TooManyRequests."""
    if len(body) > MOST_SWEEP_BYTES:
        raise TooLarge(f"the sweep has {len(body)} bytes: submit at most {MOST_SWEEP_BYTES}")
    sweep = await services.parses_of(body).begin(caller.key, partial(services.parser.sweep, body))
    await _count_trials(access, caller, sweep.size)
    return sweep


@bodies.declares(bodies.json(SweepExtension, example={"trials": 20}))
async def _parse_extension(
    services: ServicesDep, access: AccessDep, caller: Annotated[Principal, Depends(authenticate)], body: Body
) -> SweepExtension:
    """Parses what is added to a sweep. Raises as `Parser` does, and TooManyRequests."""
    more = await services.parses_of(body).begin(caller.key, partial(services.parser.extension, body))
    await _count_trials(access, caller, min(more.size, MOST_POINTS))
    return more


async def _count_trials(access: Access, caller: Principal, trials: int) -> None:
    if trials > 1:  # the request itself is one
        await access.requests.take(caller.key, advice=f"{caller.name} has sent too many trials", cost=trials - 1)


SweepBody = Annotated[SweepSpec, Depends(_parse_sweep)]
"""A route's parameter: a sweep, whose job spec is not looked at yet."""
ExtensionBody = Annotated[SweepExtension, Depends(_parse_extension)]
"""A route's parameter: what is added to a sweep."""

Number = Annotated[int, Depends(_number)]

_PART_S = 0.02
"""After so long of checking points, others have a turn."""

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"model": SweepView, "headers": headers("Location", "Idempotent-Replayed")},
    **problems(Conflict),
}


@router.post("/sweeps/validate", response_model=SweepResolved)
@in_turns
def validate_sweep(services: ServicesDep, caller: JobReader, sent: SweepBody) -> Parts[SweepResolved]:
    """Checks a sweep and returns it with all defaults and its number of trials. Stores nothing."""
    del caller
    spec, _ = yield from _checked(services, sent)
    return SweepResolved(spec=spec, points=spec.size)


@router.post("/sweeps", status_code=201, response_model=SweepView, responses=_CREATED)
@writes_in_turns
def submit_sweep(services: ServicesDep, caller: JobWriter, sent: SweepBody, keyed: Keyed) -> Parts[Response]:
    """Submits a sweep: a job spec and the parameters to vary. The service makes its jobs within `max_parallel` and the
    quota.
    """
    spec, first = yield from _checked(services, sent)
    new = NewSweep(spec, caller, services.settings.visibility, keyed)
    with services.store.write("sweeps") as session:
        sweep, replayed = submit.submit(session, new, first)
    sent_headers = {"Location": f"/v1/sweeps/{sweep.id}"} | ({"Idempotent-Replayed": "true"} if replayed else {})
    body = sweep.model_dump_json()
    return Response(body, status_code=201, headers=sent_headers, media_type="application/json")


@router.get("/sweeps")
@in_turns
def list_sweeps(
    *,
    services: ServicesDep,
    caller: JobReader,
    name: Annotated[Text | None, Query(description="only this exact name")] = None,
    owner: Annotated[Text | None, Query(description="only this user")] = None,
    state: Annotated[list[SweepState], Query(max_length=20, description="only these states")] = [],  # noqa: B006
    limit: Limit = 100,
    after: AfterSweep = None,
) -> Page[SweepSummary]:
    """Lists sweeps, newest first."""
    where, last = SweepFilter(name, owner, state), id_after(after, "swp")
    with services.store.read() as session:
        sweeps = listing.list_sweeps(session, where, caller=caller, limit=limit, after=last)
    return page_of_views(SweepSummary, sweeps, cursor=lambda sweep: sweep.id)


@router.get("/sweeps/{sweep_id}")
@in_turns
def get_sweep(services: ServicesDep, caller: JobReader, sweep_id: str) -> SweepView:
    """Returns a sweep and its best trial so far."""
    return _find(services, sweep_id, caller)


@router.get("/sweeps/{sweep_id}/trials")
@in_turns
def list_trials(
    *,
    services: ServicesDep,
    caller: JobReader,
    sweep_id: str,
    sort: Annotated[TrialSort, Query(description="`value`: best first; `number`: in order of trial number")] = "value",
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Page[TrialView]:
    """Lists the trials that have a job, with their ranks."""
    before = number_after(after)
    with services.store.read() as session:
        trials = listing.list_trials(session, sweep_id, caller=caller, sort=sort, limit=limit, after=before)
    shown = [_trial_view(trial, rank) for trial, rank in trials.items]
    return Page[TrialView](
        data=shown, has_more=trials.has_more, next=str(before + len(shown)) if trials.has_more else None
    )


@router.post("/sweeps/{sweep_id}/pause", status_code=202, responses=problems(Conflict))
def pause_sweep(services: ServicesDep, caller: JobWriter, sweep_id: str) -> SweepView:
    """Pauses a sweep: it makes no more trials, and pauses its waiting and running jobs one after another."""
    return _ask(services, "pause", sweep_id, caller)


@router.post("/sweeps/{sweep_id}/resume", status_code=202, responses=problems(Conflict))
def resume_sweep(services: ServicesDep, caller: JobWriter, sweep_id: str) -> SweepView:
    """Resumes a paused sweep and its paused jobs. Jobs that wait at a rung stay paused."""
    return _ask(services, "resume", sweep_id, caller)


@router.post("/sweeps/{sweep_id}/cancel", status_code=202, responses=problems(Conflict))
def cancel_sweep(services: ServicesDep, caller: JobWriter, sweep_id: str) -> SweepView:
    """Cancels a sweep: it makes no more trials, and cancels its unfinished jobs one after another."""
    return _ask(services, "cancel", sweep_id, caller)


@router.post("/sweeps/{sweep_id}/extend", response_model=SweepView, responses=problems(Conflict))
@writes_in_turns
def extend_sweep(services: ServicesDep, caller: JobWriter, sweep_id: str, more: ExtensionBody) -> Parts[SweepView]:
    """Adds trials or points, or changes `max_parallel`. A finished sweep continues."""
    before = _find(services, sweep_id, caller).spec
    wider = extended(before, more)
    yield from _check(services, wider, added_points(before, wider))
    return submit.extend(services.store, sweep_id, more, caller=caller)


@router.post("/sweeps/{sweep_id}/trials/{number}/promote", status_code=202, responses=problems(Conflict, QuotaExceeded))
def promote_trial(services: ServicesDep, caller: JobWriter, sweep_id: str, number: Number) -> TrialView:
    """Continues a trial that has ended or waits at a rung. The trial resumes from its newest checkpoint."""
    with services.store.write("sweeps") as session:
        requests.promote(session, sweep_id, number, caller=caller)
    with services.store.read() as session:
        trial, rank = listing.find_trial(session, sweep_id, number, caller=caller)
    return _trial_view(trial, rank)


@router.delete(
    "/sweeps/{sweep_id}",
    status_code=204,
    responses=problems(Conflict),
    response_class=Response,
    response_model=None,
)
@writes_in_turns
def delete_sweep(
    services: ServicesDep,
    caller: JobWriter,
    sweep_id: str,
    jobs: Annotated[bool, Query(description="also delete its jobs, with everything that they stored")] = False,
) -> Parts[Response]:
    """Deletes a finished sweep. Its jobs stay without a sweep, unless `jobs` is true."""
    if jobs:
        for _ in requests.delete_jobs(services.store, sweep_id, caller=caller):
            yield
    with services.store.write("sweeps") as session:
        requests.delete(session, sweep_id, caller=caller)
    return Response(status_code=204, background=BackgroundTask(collect_garbage, services) if jobs else None)


def _find(services: Services, sweep_id: str, caller: Principal) -> SweepView:
    with services.store.read() as session:
        return listing.find_sweep(session, sweep_id, caller=caller)


def _ask(services: Services, action: requests.Action, sweep_id: str, caller: Principal) -> SweepView:
    with services.store.write("sweeps") as session:
        return requests.ask(session, action, sweep_id, caller=caller)


def _trial_view(trial: TrialFacts, rank: int | None) -> TrialView:
    return TrialView(
        number=trial.number,
        job_id=trial.job_id,
        state=trial.state,
        point=trial.point,
        point_omitted=trial.point_omitted or None,
        value=trial.value,
        step=trial.step,
        epoch=trial.epoch,
        rank=rank,
        rung=_rung_of(trial),
        error=trial.error,
    )


def _rung_of(trial: TrialFacts) -> int | None:
    """Returns how many rungs the trial has reached: those where it has paused, and the last if it came to its end."""
    if not trial.rungs:
        return None
    return len(trial.rungs) + (trial.state is JobState.SUCCEEDED)


def _checked(services: Services, sent: SweepSpec) -> Generator[None, None, tuple[SweepSpec, Spec]]:
    """Returns the sweep with every default filled in, and the job spec of trial 0. Raises InvalidSpec."""
    settings = services.settings
    spec, first = resolved(sent, visibility=settings.visibility, maximums=settings.maximums)
    yield from _check(services, spec, enumerate(checked_points(spec)))
    return spec, first


def _check(services: Services, spec: SweepSpec, points: Iterable[tuple[int, Point]]) -> Generator[None, None, None]:
    """Checks the job specs of trials, by their numbers and points. Raises InvalidSpec."""
    began = time.monotonic()
    for number, point in points:
        within(spec_of(spec, number, point), services.settings.maximums)
        if time.monotonic() - began > _PART_S:
            yield
            began = time.monotonic()
