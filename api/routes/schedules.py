"""Adds, lists, shows, changes and deletes schedules. Their runs are jobs."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from api.auth.callers import JobReader, JobWriter
from api.openapi.completion import headers, problems
from api.openapi.routers import guarded
from api.parameters.bodies import SpecBody, json_body
from api.parameters.idempotency import Keyed
from api.parameters.paging import AfterSchedule, Limit, id_after, page_of_views
from api.parameters.reads import in_turns
from api.services import ServicesDep
from store.schedules import schedules
from store.schedules.schedules import NewSchedule
from torchyard.contract.errors import Conflict, FieldError, InvalidSpec, NotFound, Unavailable
from torchyard.contract.jobs.filters import Text
from torchyard.contract.schedules import SchedulePatch, ScheduleSummary, ScheduleView
from torchyard.contract.spec.maximums import within
from torchyard.contract.wire.view import Page

router = guarded("schedules", Unavailable)

PatchBody = Annotated[SchedulePatch, json_body(SchedulePatch, example={"paused": True})]

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"model": ScheduleView, "headers": headers("Location", "Idempotent-Replayed")},
    **problems(Conflict),
}


@router.post("/schedules", status_code=201, response_model=ScheduleView, responses=_CREATED)
def add_schedule(services: ServicesDep, caller: JobWriter, sent: SpecBody, keyed: Keyed) -> Response:
    """Adds a schedule: a job spec with the key `schedule`. The service submits the job at each scheduled time."""
    if sent.schedule is None:
        raise InvalidSpec("the job spec is not valid", errors=(FieldError("schedule", "is missing"),))
    spec = within(sent, services.settings.maximums)
    new = NewSchedule(spec, sent.schedule, caller, services.settings.visibility, keyed)
    with services.store.write("change") as session:
        schedule, replayed = schedules.add(session, new)
    sent_headers = {"Location": f"/v1/schedules/{schedule.id}"} | ({"Idempotent-Replayed": "true"} if replayed else {})
    body = schedule.model_dump_json()
    return Response(body, status_code=201, headers=sent_headers, media_type="application/json")


@router.get("/schedules")
@in_turns
def list_schedules(
    *,
    services: ServicesDep,
    caller: JobReader,
    owner: Annotated[Text | None, Query(description="only this user")] = None,
    limit: Limit = 100,
    after: AfterSchedule = None,
) -> Page[ScheduleSummary]:
    """Lists the schedules that you may read, newest first. `GET /v1/jobs?schedule=ID` lists the runs of one."""
    last = id_after(after, "sch")
    with services.store.read() as session:
        listed = schedules.list_schedules(session, caller=caller, owner=owner, limit=limit, after=last)
    return page_of_views(ScheduleSummary, listed, cursor=lambda item: item.id)


@router.get("/schedules/{schedule_id}", responses=problems(NotFound))
@in_turns
def get_schedule(services: ServicesDep, caller: JobReader, schedule_id: str) -> ScheduleView:
    """Returns a schedule and the spec of its jobs."""
    with services.store.read() as session:
        return schedules.find(session, schedule_id, caller=caller)


@router.patch("/schedules/{schedule_id}", responses=problems(NotFound))
def change_schedule(services: ServicesDep, caller: JobWriter, schedule_id: str, patch: PatchBody) -> ScheduleView:
    """Pauses or resumes a schedule, or replaces its times. Runs that were due during the pause are skipped."""
    with services.store.write("change") as session:
        return schedules.change(session, schedule_id, patch, caller=caller)


@router.delete("/schedules/{schedule_id}", status_code=204, responses=problems(NotFound))
def delete_schedule(services: ServicesDep, caller: JobWriter, schedule_id: str) -> None:
    """Deletes a schedule. The jobs that it submitted stay."""
    with services.store.write("change") as session:
        schedules.remove(session, schedule_id, caller=caller)
