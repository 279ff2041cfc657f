"""Asks the worker of a job to store files of its working folder, and says how far it has come."""

from typing import Annotated

from api.auth.callers import JobId, JobReader, JobWriter
from api.openapi.routers import guarded
from api.parameters.bodies import json_body
from api.parameters.reads import in_turns
from api.services import ServicesDep
from store.attempts import keeping
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.files.views import KeepView
from torchyard.contract.jobs.requests import NewKeep

router = guarded("artifacts", Conflict, Unavailable)

KeepBody = Annotated[NewKeep, json_body(NewKeep, example={"paths": ["results/"]})]


@router.post("/jobs/{job_id}/keep", status_code=202)
def keep_files(services: ServicesDep, caller: JobWriter, job_id: JobId, wanted: KeepBody) -> KeepView:
    """Asks the worker to store files and folders of the job's working folder.

    Repeating the request changes nothing until the worker has answered.
    """
    with services.store.write("keep") as session:
        return keeping.ask(session, job_id, wanted.paths, caller)


@router.get("/jobs/{job_id}/keep")
@in_turns
def get_keep(services: ServicesDep, caller: JobReader, job_id: JobId) -> KeepView:
    """Returns the newest request to store files, to the job's owner or an administrator."""
    with services.store.read() as session:
        return keeping.find_newest(session, job_id, caller)
