"""Checkpoints, their aliases and references."""

import contextlib
from dataclasses import replace
import math

import pytest

from store.attempts.facts import Claim
from store.ids import new_id
from store.output import checkpoints
from store.output.facts import NewCheckpoint
from store.team.callers import SERVICE
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint, recorded_statements
from torchyard.contract.attempts.events import Remeasured
from torchyard.contract.attempts.records import ManifestFile
from torchyard.contract.errors import NotFound
from torchyard.contract.states import EndReason


@pytest.fixture
def claim(db: StoreFixture) -> Claim:
    return db.running(db.submit(), db.worker())


def add(db: StoreFixture, claim: Claim, *new: NewCheckpoint) -> None:
    db.record(claim, seq=db.attempt(claim).relay_seq, checkpoints=list(new))


def aliases(db: StoreFixture, job_id: str) -> dict[str, list[str]]:
    """Returns the aliases of each checkpoint, newest first, by `attempt/name`."""
    found = db.read(lambda session: checkpoints.list_checkpoints(session, job_id, caller=SERVICE, limit=100).items)
    return {f"{item.attempt}/{item.name}": [*item.aliases] for item in found}


def name_of(db: StoreFixture, job_id: str, ref: str) -> str:
    row = db.read(lambda session: checkpoints.resolve(session, db.job(job_id), ref))
    return f"{row.attempt}/{row.name}"


def test_a_checkpoint_is_listed_and_has_an_event(db: StoreFixture, claim: Claim) -> None:
    version = db.job(claim.job_id).version
    add(db, claim, checkpoint("epoch-0001", step=10, epoch=1, val_loss=0.5, train_loss=math.inf))
    ((item),) = db.read(
        lambda session: checkpoints.list_checkpoints(session, claim.job_id, caller=SERVICE, limit=100).items
    )
    assert item.aliases == ["best", "latest", "epoch-1", "step-10"]
    assert (item.epoch, item.step, item.attempt) == (1, 10, 1)
    assert item.metrics == {"val/loss": 0.5, "train/loss": "Infinity"}
    assert item.files == [{"path": "state.pt", "size": 1, "sha256": "0" * 64}]
    event = db.events(claim.job_id)[-1]
    assert event.type == "checkpoint"
    assert event.data == {"id": item.id, "epoch": 1, "step": 10, "metrics": item.metrics}
    assert db.job(claim.job_id).version == version + 1


def test_files_are_read_of_the_checkpoints_that_are_told(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, *(checkpoint(f"step-{step}", step=step, val_loss=1 / step) for step in range(1, 6)))
    with recorded_statements(db.database) as statements:
        page = db.read(
            lambda session: checkpoints.list_checkpoints(session, claim.job_id, caller=SERVICE, limit=2).items
        )
        rest = db.read(
            lambda session: (
                checkpoints.list_checkpoints(session, claim.job_id, caller=SERVICE, limit=2, after=page[-1].id).items
            )
        )
        best = db.read(lambda session: checkpoints.resolve(session, db.job(claim.job_id), "best"))
    assert ([item.step for item in page], [item.step for item in rest], best.step) == ([5, 4], [3, 2], 5)
    assert [each for each in statements if "checkpoints.files" in each and "checkpoints.id IN" not in each] == []
    assert page[0].aliases == ["best", "latest", "step-5"] and rest[0].aliases == ["step-3"]


def test_a_name_that_the_attempt_listed_before_changes_nothing(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("one", step=1, val_loss=1.0))
    before = (aliases(db, claim.job_id), len(db.events(claim.job_id)))
    add(db, claim, checkpoint("one", step=2, val_loss=0.1))
    assert (aliases(db, claim.job_id), len(db.events(claim.job_id))) == before


def test_aliases_of_one_attempt(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("epoch-0001", step=10, epoch=1, val_loss=0.5))
    add(db, claim, checkpoint("epoch-0002", step=20, epoch=2, val_loss=0.3))
    add(db, claim, checkpoint("step-25", step=25, epoch=3, end_of_epoch=False))
    add(db, claim, checkpoint("epoch-0003", step=30, epoch=3, val_loss=0.4))
    assert aliases(db, claim.job_id) == {
        "1/epoch-0003": ["latest", "epoch-3", "step-30"],
        "1/step-25": ["step-25"],
        "1/epoch-0002": ["best", "epoch-2", "step-20"],
        "1/epoch-0001": ["epoch-1", "step-10"],
    }


@quick_on_sqlite
def test_aliases_refer_to_the_latest_attempts(db: StoreFixture, claim: Claim) -> None:
    for epoch, loss in ((1, 0.5), (2, 0.1), (3, 0.4)):
        add(db, claim, checkpoint(f"epoch-000{epoch}", step=10 * epoch, epoch=epoch, val_loss=loss))
    db.end(claim, EndReason.WORKER_LOST)
    again = db.running(claim.job_id, db.worker())
    assert name_of(db, claim.job_id, "latest") == "1/epoch-0003"
    add(db, again, checkpoint("epoch-0002", step=20, epoch=2, val_loss=0.2))
    assert aliases(db, claim.job_id) == {
        "2/epoch-0002": ["latest", "epoch-2", "step-20"],
        "1/epoch-0003": ["epoch-3", "step-30"],
        "1/epoch-0002": ["best"],
        "1/epoch-0001": ["epoch-1", "step-10"],
    }


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("min", [3.0, 1.0, 2.0], 1),
        pytest.param("max", [3.0, 1.0, 2.0], 0, marks=pytest.mark.thorough),
        ("min", [1.0, 1.0, 1.0], 0),
        ("max", [0.5, 0.9, 0.9], 1),
        ("min", [math.nan, 2.0, 1.0], 2),
        pytest.param("max", [math.nan, 1.0, math.nan], 1, marks=pytest.mark.thorough),
        pytest.param("max", [math.inf, 1.0, 2.0], 2, marks=pytest.mark.thorough),
        ("min", [-math.inf, 1.0, 0.5], 2),
        ("min", [math.nan, math.inf, math.nan], None),
        pytest.param("max", [-1.0, 0.0, -2.0], 1, marks=pytest.mark.thorough),
    ],
)
def test_the_best_is_the_earliest_with_the_best_value(
    db: StoreFixture, mode: str, values: list[float], best: int | None
) -> None:
    claim = db.running(db.submit(checkpoint={"monitor": "val/score", "mode": mode}), db.worker())
    for index, value in enumerate(values):
        add(db, claim, checkpoint(f"c{index}", step=index, val_score=value))
    if best is None:
        assert all("best" not in names for names in aliases(db, claim.job_id).values())
        with pytest.raises(NotFound, match="no checkpoint 'best'"):
            name_of(db, claim.job_id, "best")
    else:
        assert name_of(db, claim.job_id, "best") == f"1/c{best}"


def test_a_checkpoint_without_the_monitored_metric_is_not_best(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("one", step=1, val_accuracy=0.9))
    assert aliases(db, claim.job_id) == {"1/one": ["latest", "step-1"]}
    assert db.read(lambda session: checkpoints.find_best(session, db.job(claim.job_id))) is None


def test_references_resolve_in_every_form(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("epoch-0001", step=10, epoch=1, val_loss=1.0))
    for ref in ("epoch-1", "epoch-0001", "epoch-000000000000000001", "step-10", "step-0010", "best", "latest"):
        assert name_of(db, claim.job_id, ref) == "1/epoch-0001", ref


def test_an_unknown_reference_is_not_found(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("epoch-0001", step=10, epoch=1, val_loss=1.0))
    unknown = ["", "epoch-2", "epoch-", "epoch--1", "epoch-1 ", "Epoch-1", "step-1e1", "step-" + "9" * 400, "state"]
    found: list[str] = []
    for ref in (*unknown, "../x", "é"):
        with contextlib.suppress(NotFound):
            found.append(name_of(db, claim.job_id, ref))
    assert found == []


def test_a_checkpoint_of_another_job_is_not_found_by_its_id(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("one", step=1))
    (row,) = db.read(lambda session: checkpoints.list_newest_first(session, claim.job_id))
    other = db.submit()
    assert name_of(db, claim.job_id, row.id) == "1/one"
    for ref in (row.id, "latest"):
        with pytest.raises(NotFound, match="no checkpoint yet"):
            name_of(db, other, ref)
    with pytest.raises(NotFound):
        name_of(db, claim.job_id, new_id("ckpt"))


def test_a_file_is_found_by_its_listed_name(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("one", step=1))
    (row,) = db.read(lambda session: checkpoints.list_newest_first(session, claim.job_id))
    assert row.file("state.pt")["sha256"] == "0" * 64
    with pytest.raises(NotFound, match="no file"):
        row.file("./state.pt")


@quick_on_sqlite
def test_long_lists_of_files_are_read_of_the_newest_alone(db: StoreFixture, claim: Claim) -> None:
    files = [ManifestFile(path=f"{number:0100}", size=1, sha256="0" * 64) for number in range(100)]
    many = [replace(checkpoint(name, step=step), files=files) for step, name in enumerate(("a", "b", "c"))]
    add(db, claim, many[0], checkpoint("short", step=9), *many[1:])
    length = db.read(lambda session: checkpoints.list_newest_first(session, claim.job_id))[0].files_bytes
    assert length is not None and length > 8192
    rows = db.read(lambda session: checkpoints.list_newest_first(session, claim.job_id, most_bytes=2 * length))
    assert [(row.name, len(row.files), row.files_omitted) for row in rows] == [
        ("c", 100, False),
        ("b", 100, False),
        ("short", 1, False),
        ("a", 0, True),
    ]
    whole = db.read(lambda session: checkpoints.find_with_files(session, claim.job_id, rows[-1].id))
    assert whole is not None and (whole.name, len(whole.files)) == ("a", 100)
    assert db.read(lambda session: checkpoints.find_with_files(session, new_id("job"), rows[-1].id)) is None


@quick_on_sqlite
def test_the_best_checkpoints_of_many_jobs_take_one_query_per_mode(db: StoreFixture) -> None:
    worker = db.worker()
    least = db.running(db.submit(checkpoint={"mode": "min"}), worker, "a")
    most = db.running(db.submit(checkpoint={"mode": "max"}), worker, "b")
    none = db.running(db.submit(), worker, "c")
    for claim in (least, most):
        add(db, claim, *[checkpoint(f"c{loss}", step=loss, val_loss=loss) for loss in (2, 1, 3)])
    add(db, none, checkpoint("c", step=1, val_loss=math.nan))
    modes = {least.job_id: "min", most.job_id: "max", none.job_id: "min"}
    found = db.read(lambda session: checkpoints.find_best_of_jobs(session, modes))
    assert {job_id: best.value for job_id, best in found.items()} == {least.job_id: 1.0, most.job_id: 3.0}
    assert db.read(lambda session: checkpoints.find_best_of_jobs(session, {})) == {}


def remeasure(db: StoreFixture, claim: Claim, name: str, value: float, *, attempt: int | None = None) -> None:
    event = Remeasured(time=1, name=name, attempt=attempt, metrics={"val/loss": value})
    db.record(claim, seq=db.attempt(claim).relay_seq, remeasured=event)


def measured_again(db: StoreFixture, job_id: str) -> dict[str, object]:
    """Returns what each checkpoint has measured again, by `attempt/name`."""
    found = db.read(lambda session: checkpoints.list_newest_first(session, job_id))
    return {f"{item.attempt}/{item.name}": item.remeasured for item in found}


def test_what_is_measured_again_is_told_of_the_checkpoint_and_of_the_best(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("one", step=1, val_loss=0.5), checkpoint("two", step=2, val_loss=0.7))
    version = db.job(claim.job_id).version
    remeasure(db, claim, "one", 0.51)
    remeasure(db, claim, "two", math.nan)
    assert measured_again(db, claim.job_id) == {"1/two": {"val/loss": "NaN"}, "1/one": {"val/loss": 0.51}}
    best = db.read(lambda session: checkpoints.find_best(session, db.job(claim.job_id)))
    assert best is not None
    assert (best.value, best.remeasured) == (0.5, {"val/loss": 0.51})
    assert db.job(claim.job_id).version == version + 2


@quick_on_sqlite
def test_a_checkpoint_of_an_earlier_attempt_is_measured_again_by_a_later_one(db: StoreFixture, claim: Claim) -> None:
    add(db, claim, checkpoint("one", step=1, val_loss=0.5))
    db.end(claim, EndReason.WORKER_LOST)
    again = db.running(claim.job_id, db.worker())
    add(db, again, checkpoint("one", step=1, val_loss=0.6))
    remeasure(db, again, "one", 0.5, attempt=1)
    assert measured_again(db, claim.job_id) == {"2/one": None, "1/one": {"val/loss": 0.5}}


@quick_on_sqlite
def test_a_line_about_a_checkpoint_that_is_not_listed_changes_nothing(db: StoreFixture, claim: Claim) -> None:
    other = db.running(db.submit(), db.worker("box-b"))
    add(db, other, checkpoint("theirs", step=1, val_loss=0.5))
    add(db, claim, checkpoint("one", step=1, val_loss=0.5))
    versions = [db.job(item.job_id).version for item in (claim, other)]
    remeasure(db, claim, "theirs", 0.0)
    remeasure(db, claim, "one", 0.0, attempt=2)
    assert measured_again(db, claim.job_id) == {"1/one": None}
    assert measured_again(db, other.job_id) == {"1/theirs": None}
    assert [db.job(item.job_id).version for item in (claim, other)] == versions
