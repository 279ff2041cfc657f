"""What follows the calls of a route finds them, in their order."""

from pathlib import Path

import pytest

from bench.reach.__main__ import ROOT, STARTS
from bench.reach.follow import follow

ROUTE = """
from typing import Annotated

from api.services import Services
from store.jobs import submit as jobs

Shared = Annotated[Services, None]
SHOWN = jobs.LONGEST


@router.post("/jobs", responses=unused())
def submit_job(services: Shared) -> None:
    with services.store.write() as session:
        made = [jobs.submit(session, each) for each in range(SHOWN)]
    return _shown(made)


def _shown(made):
    return made.name


def unused(): ...
"""
SUBMIT = """
LONGEST = 3

def submit(session, each):
    return Job(each).name

class Job:
    def __init__(self, each): ...
    @property
    def name(self): ...
    def unused(self): ...
"""
FILES = {
    "api/routes/submission.py": ROUTE,
    "api/services.py": "from store.store import Store\nclass Services:\n    store: Store\n",
    "store/store.py": "class Store:\n    def write(self): return self._turn()\n    def _turn(self): ...\n",
    "store/jobs/submit.py": SUBMIT,
}


def test_a_route_reaches_what_it_calls_in_order(tmp_path: Path) -> None:
    for name, source in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    reached = follow(tmp_path, ("POST /jobs",))
    assert [f"{thing.module.name}:{thing.name}" for _, thing in reached.hops] == [
        "api.routes.submission:submit_job",
        "api.routes.submission:Shared",
        "api.services:Services",
        "store.store:Store.write",
        "store.store:Store._turn",
        "api.routes.submission:SHOWN",
        "store.jobs.submit:LONGEST",
        "store.jobs.submit:submit",
        "store.jobs.submit:Job",
        "store.jobs.submit:Job.__init__",
        "store.jobs.submit:Job.name",
        "api.routes.submission:_shown",
    ]
    assert reached.files == ["api.routes.submission", "api.services", "store.store", "store.jobs.submit"]
    with pytest.raises(LookupError):
        follow(tmp_path, ("GET /jobs",))


def test_each_start_is_there() -> None:
    starts = tuple(each for some in STARTS.values() for each in some)
    assert len(follow(ROOT, starts).files) > len(starts)
