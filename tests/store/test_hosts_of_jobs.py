"""What the rows say of the hosts on which a job may start."""

from typing import Any

import pytest

from scheduling.needs import Needs
from scheduling.snapshot import Host
from store.attempts.facts import Claim
from store.cluster import occupancy, requested, workers
from store.jobs.needs import needs_of
from store.queue import waiting
from store.tables import Worker
from tests.store.fixture import StoreFixture
from torchyard.contract.cluster.devices import EnvironmentReport, StartsReport
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.resources import Resources
from torchyard.contract.spec.spec import parse_spec

SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ({"trainer": "image-classification"}, None),
        (
            {"trainer": "image-classification", "config": {"data": {"source": "file:///my%20data"}}},
            {"folders": ["/my data"]},
        ),
        (
            SCRIPT | {"config": {**SCRIPT["config"], "python": "cu124", "mounts": {"mnist": "file:///data/mnist"}}},
            {"folders": ["/code", "/data/mnist"], "python": "cu124"},
        ),
    ],
    ids=["none", "data", "script"],
)
def test_a_job_needs_the_files_and_the_environment_that_its_spec_names(
    spec: dict[str, Any], needs: dict[str, Any] | None
) -> None:
    assert needs_of(parse_spec(spec)) == needs


def test_a_plan_reads_what_jobs_need_and_workers_offer(db: StoreFixture) -> None:
    name = "wrk_a"
    offered = StartsReport(mode="cold", folders=["/data"], environments=[EnvironmentReport(name="x", path="/envs/x")])
    worker = db.worker(name)
    db.write(lambda session: workers.heartbeat(session, worker, devices=[], starts=offered.to_dict()))
    job_id = db.submit(**SCRIPT)
    [job] = db.read(lambda session: waiting.waiting_among(session, [job_id]))
    assert job.needs == Needs(("/code",))
    [host] = db.read(lambda session: occupancy.read_places(session, {})).hosts
    assert isinstance(host, Host)
    assert (host.offer.folders, host.offer.environments) == ({"/data"}, {"x", "/envs/x"})
    assert host.known == host.offer


def claimed(db: StoreFixture, *, users: list[str] | None = None, **resources: Any) -> Claim | None:
    worker = db.worker("box-b")

    def limit(session: Any) -> None:
        session.get(Worker, worker).users = users

    db.write(limit)
    return db.claim(db.submit(resources=resources), worker)


def test_a_worker_claims_no_job_that_names_another_or_is_of_another_user(db: StoreFixture) -> None:
    assert claimed(db, worker="box-b") is not None
    assert claimed(db, worker="box-a") is None
    assert claimed(db, users=["nobody"]) is None


def test_a_job_cannot_name_a_worker_that_was_never_there(db: StoreFixture) -> None:
    db.worker("box-b")
    db.read(lambda session: requested.check(session, Resources(worker="box-b")))
    with pytest.raises(InvalidSpec) as raised:
        db.read(lambda session: requested.check(session, Resources(worker="box-c")))
    assert raised.value.errors[0].field == "resources.worker"
