"""Making jobs: validate a spec, submit it, retry a job that has ended."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from api import hints, present
from api.auth import JobId, User
from api.body import Body, Keyed, parsed
from api.openapi import SPEC_BODY, headers, problems
from api.services import Parts, Services
from store.db.database import Session
from store.db.tables import Job
from store.rows import idempotency, jobs
from store.rows.idempotency import Answer, KeyedRequest, KeyTaken
from store.rows.retry import retry
from torchyard.errors import Conflict, TooLarge, Unavailable
from torchyard.spec import parse_spec
from torchyard.views import JobView, SpecView

router = APIRouter(tags=["jobs"])

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"model": JobView, "headers": headers("Location", "Idempotent-Replayed")},
    **problems(Unavailable),
}


@router.post("/jobs/validate", openapi_extra=SPEC_BODY)
def validate_spec(body: Body) -> SpecView:
    """The spec with every default filled in, or what is wrong with it. Nothing is stored."""
    return SpecView(spec=parse_spec(parsed(body)))


@router.post("/jobs", status_code=201, openapi_extra=SPEC_BODY, responses=_CREATED)
def submit_job(parts: Parts, user: User, body: Body, keyed: Keyed) -> Response:
    """Submits a job: it is queued when this answers."""
    spec = parse_spec(parsed(body))

    def make(session: Session) -> tuple[Job, JobView]:
        row = jobs.submit(session, spec, owner=user.name)
        return row, present.new_job(session, row, spec)

    return _once(parts, keyed, make)


@router.post("/jobs/{job_id}/retry", status_code=201, responses=_CREATED | problems(Conflict, TooLarge))
def retry_job(parts: Parts, user: User, job_id: JobId, keyed: Keyed) -> Response:
    """Submits the spec of a job that has ended as a new job, which resumes from the newest checkpoint of the old."""

    def make(session: Session) -> tuple[Job, JobView]:
        row = retry(session, job_id, owner=user.name, sees=user.sees)
        return row, present.job(session, row)

    return _once(parts, keyed, make)


def _once(parts: Services, keyed: KeyedRequest | None, make: Callable[[Session], tuple[Job, JobView]]) -> Response:
    """Makes a job and answers with it; answers as before where the request was made before."""
    while True:
        try:
            with parts.database.write("submit") as session:
                known = idempotency.recall(session, keyed) if keyed is not None else None
                if known is not None:
                    return _replayed(known)
                row, view = make(session)
                location = f"/v1/jobs/{row.id}"
                if keyed is not None:
                    body = view.model_dump(mode="json")
                    idempotency.remember(session, keyed, Answer(row.id, 201, location, body))
        except KeyTaken:
            continue
        hints.changed(parts.queue, row)
        return _answer(view, status=201, headers={"Location": location})


def _replayed(answer: Answer) -> Response:
    view = JobView.model_validate(answer.body)
    return _answer(view, status=answer.status, headers={"Location": answer.location, "Idempotent-Replayed": "true"})


def _answer(view: JobView, *, status: int, headers: dict[str, str]) -> Response:
    return Response(view.model_dump_json(), status_code=status, headers=headers, media_type="application/json")
