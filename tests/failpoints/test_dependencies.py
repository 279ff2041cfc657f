"""A controller is killed or delayed between the end of a job and what follows for those that wait for it."""

from io import BytesIO
from typing import Any

import pytest

from store.blobs.folder import BlobFolder
from store.jobs import batches
from store.jobs.submission import Submission
from store.output.facts import NewCheckpoint
from store.team.callers import SERVICE
from tests import line
from tests.failpoints import actions
from tests.failpoints.armed import started
from tests.failpoints.beside import beside, on_sqlite
from tests.failpoints.fixture import FailpointFixture
from tests.store.fixture import store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import EndReason

POINTS = [f"store.dependencies.{side}" for side in ("before", "after")]
PLACES = [*POINTS, *(f"queue.announce.{side}" for side in ("before", "after"))]
SPECS: list[dict[str, Any]] = [
    {"name": "prep"},
    {"name": "plain", "after": [{"job": "prep"}]},
    {"name": "weights", "after": [{"job": "prep"}], "init_from": "${jobs.prep.best}"},
    {"name": "rescue", "after": [{"job": "prep", "on": "failed"}]},
    {"name": "behind", "after": [{"job": "rescue"}]},
]


@pytest.mark.parametrize("point", PLACES)
def test_a_killed_controller_leaves_all_to_the_next(service: FailpointFixture, point: str) -> None:
    ids = _ended(service)
    with started(actions.settle, service.settings, plan=f"{point}=kill", log=service.log) as child:
        assert child.wait() == -9
        assert child.acted == [point]
    actions.settle(service.settings)
    _check(service, ids)


@pytest.mark.parametrize("point", PLACES)
def test_two_controllers_do_it_once(service: FailpointFixture, point: str) -> None:
    ids = _ended(service)
    with started(actions.settle, service.settings, plan=f"{point}=stop@1", log=service.log) as child:
        child.wait_for_stop()
        with beside(service.database, actions.settle, service.settings) as second:
            assert second.waits == (point == POINTS[0] and on_sqlite(service.database))  # else it skips locked rows
            child.go_on()
            assert child.wait() == 0
    _check(service, ids)


def _ended(service: FailpointFixture) -> dict[str, str]:
    """Returns jobs by their names, of which the first has succeeded and nobody has looked at the others."""
    wanted = {
        place: Submission(
            parse_spec({"trainer": "script", "config": {"code": "file:///code"}, **spec}), SERVICE, "team"
        )
        for place, spec in enumerate(SPECS)
    }
    made = batches.submit_part(store_on(service.database, queue=service.queue), wanted, whole=None, atomic=True)
    ids = {spec["name"]: str(made[place]) for place, spec in enumerate(SPECS)}
    claim = service.running(ids["prep"], service.worker())
    blob = BlobFolder(service.settings.blobs).add(BytesIO(b"state"))
    files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
    manifest = Manifest(step=1, epoch=1, end_of_epoch=True, metrics={"val/loss": 0.5}, files=files)
    service.record(claim, seq=0, checkpoints=[NewCheckpoint("epoch-1", manifest, files)])
    service.end(claim, EndReason.COMPLETED)
    return ids


def _check(service: FailpointFixture, ids: dict[str, str]) -> None:
    moves = {name: service.moves(job_id) for name, job_id in ids.items()}
    assert moves["plain"] == moves["weights"] == ["queued"]
    assert moves["rescue"] == moves["behind"] == ["queued", "failed"]
    assert {row["job_id"] for row in service.everything()["initial_weights"]} == {ids["weights"]}
    assert str(service.job(ids["weights"]).spec["init_from"]).startswith(f"{ids['prep']}/ckpt_")
    line.sweep(service.queue, service.database)
    assert sorted(line.waiting(service.queue)) == sorted([ids["plain"], ids["weights"]])
    service.check_queue()
