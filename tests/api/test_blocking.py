"""If a job waits for devices of one worker, its reason names the jobs that hold these devices."""

from typing import Any

import pytest

from api.blocking import named
from tests.api.advice.facts import NOW, worker
from tests.approved import Approved
from torchyard.contract.cluster.views import KeptView, WorkerView
from torchyard.contract.spec.resources import Resources

FREE: dict[str, Any] = {}
BLOCKED: dict[str, Any] = {"blocked": "held by pid 7"}
STORED = "needs 2 devices; 1 free on box-a"
MINE = KeptView(kind="cuda", owner="ada", job_id="job_1", name="wide")
OTHER = KeptView(kind="cuda", owner="ada", job_id="job_2", name="lr-batch-3")
HIDDEN = KeptView(kind="cuda", owner="eve")
OF_OTHER_DEVICES = KeptView(kind="cpu", owner="eve")


def held(by: str, name: str | None = None) -> dict[str, Any]:
    """Returns the fields of a device that a job of bob holds. Without its name, the job is private."""
    holder = {"owner": "bob", "state": "running", "since": NOW, "name": name}
    return {"holder": holder, "job_id": None if name is None else by}


def host(*devices: dict[str, Any], name: str = "box-a", **changes: Any) -> WorkerView:
    """Returns a worker with these devices."""
    return worker(*devices, name=name).model_copy(update=changes)


def said(*workers: WorkerView, code: str = "devices_busy", count: int = 2, message: str = STORED) -> str:
    """Returns why the job `job_1` of bob waits, which asks for so many devices."""
    return named(message, code, Resources(devices_per_node=count), workers, owner="bob", job_id="job_1")


@pytest.mark.parametrize(
    "devices",
    [
        [FREE, held("job_9", "bob-hang")],
        [FREE, held("job_9")],
        [FREE, held("job_9", "bob-hang"), held("job_9", "bob-hang")],
        [held("job_9", "bob-hang"), held("job_9", "bob-hang")],
        [held("job_9", "bob-hang"), held("job_8", "alone")],
        [held("job_9", "c"), held("job_8", "a"), held("job_7", "b")],
    ],
)
def test_who_holds_the_devices_is_named(devices: list[dict[str, Any]], approved: Approved) -> None:
    count = 3 if devices[0] == FREE and len(devices) == 3 else 2
    assert said(host(*devices), count=count, message=f"needs {count} devices; some") == approved.of_row("reason")


@pytest.mark.parametrize("kept", [[MINE], [MINE, OF_OTHER_DEVICES], [OTHER], [HIDDEN], [OTHER, HIDDEN]])
def test_another_jobs_reservation_is_named(kept: list[KeptView], approved: Approved) -> None:
    assert said(host(FREE, held("job_9", "bob-hang"), kept=kept)) == approved.of_row("reason")


def test_free_devices_may_be_reserved_for_another_job() -> None:
    message = "needs 1 device; 1 free on box-a, reserved for a job of ada"
    said_of = said(host(FREE, held("job_9", "bob-hang"), kept=[OTHER]), count=1, message=message)
    assert said_of == "needs 1 device on box-a; 1 is free, but reserved for lr-batch-3"


def test_a_reserved_job_waits_for_the_worker_of_its_reservation() -> None:
    hosts = [host(FREE, held("job_9", "bob-hang"), kept=[MINE]), host(FREE, FREE, name="box-b")]
    assert said(*hosts, code="reserved") == "needs 2 devices on box-a; 1 is free, bob-hang holds the other"


@pytest.mark.parametrize(
    ("hosts", "changes"),
    [
        ([host(FREE, held("a", "a")), host(FREE, held("b", "b"), name="box-b")], {}),
        ([host(FREE, held("a", "a")), host(held("b", "b"), name="box-b", users=["ada"])], {"code": "too_big"}),
        ([host(BLOCKED, held("a", "a"))], {}),
        ([host(FREE, FREE)], {}),
        ([host(FREE, held("a", "a"), state="draining")], {}),
        ([host(FREE, held("a", "a"), users=["ada"])], {}),
        ([host(FREE, held("a", "a"))], {"message": "needs 2 devices and environment lab; 1 free on box-a"}),
        ([host(FREE, held("a", "a"))], {"code": "reserved"}),
        ([], {}),
    ],
)
def test_the_stored_reason_stays_where_it_is_not_known_whose_devices_are_awaited(
    hosts: list[WorkerView], changes: dict[str, Any]
) -> None:
    stored = changes.get("message", STORED)
    assert said(*hosts, **changes) == stored
