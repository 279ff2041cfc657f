"""The metrics of MLflow's local stores become points, once each, whatever else the stores hold."""

import math
import os
from pathlib import Path
import sqlite3

import pytest

from tests.worker.curvefiles import Database, files_of, mlflow_run, points_of, rest
from worker.curves.brought import Brought
from worker.curves.following import CurvesRead
from worker.curves.snapshots import MOST_BYTES


def test_each_metric_of_a_run_is_read_by_its_path(tmp_path: Path) -> None:
    metrics = mlflow_run(tmp_path / "work")
    (metrics / "metrics").mkdir()
    (metrics / "loss").write_text("1500 0.5 1\n1501 nan 2\n")
    (metrics / "metrics" / "mAP50(B)").write_text("1500 0.25 7 data digest\n")
    (metrics / "old").write_text("1500 3.5\n")
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "of_no_run").write_text("1500 0.5 1\n")
    found = files_of(tmp_path).read({}, final=True)
    points = {(point.key, point.step): point.value for point in found.points["mlflow"]}
    assert math.isnan(points.pop(("loss", 2)))
    assert points == {("loss", 1): 0.5, ("metrics/mAP50(B)", 7): 0.25, ("old", 0): 3.5}
    assert {point.time for point in found.points["mlflow"]} == {1_500_000, 1_501_000}
    assert found.warnings == []


def test_a_growing_metric_is_read_once_and_a_line_without_an_end_waits(tmp_path: Path) -> None:
    path = mlflow_run(tmp_path) / "loss"
    content, offsets, found = b"".join(b"15%02d 0.5 %d\n" % (step, step) for step in range(20)), dict[str, int](), []
    for size in range(0, len(content) + 5, 5):
        path.write_bytes(content[:size])
        found += rest(files_of(tmp_path, look_s=0), offsets, final=False)
    assert found == [("loss", step, 0.5) for step in range(20)]


def test_lines_that_are_none_and_negative_steps_are_left_out_with_one_warning_each(tmp_path: Path) -> None:
    lines = [b"", b"x", b"1 2 3.5", b"\xff\xfe \x00 1", b"1500 0.5 -4", b"1500 0.5 " + b"9" * 5000, b"1500 0.5 5"]
    (mlflow_run(tmp_path) / "loss").write_bytes(b"\n".join([*lines, *lines]) + b"\n")
    found = files_of(tmp_path).read({}, final=True)
    assert [point.step for point in points_of(found)] == [5, 5]
    assert len(found.warnings) == 2
    assert "at step -4" in found.warnings[0]


def test_links_and_pipes_in_a_store_are_not_read(tmp_path: Path) -> None:
    metrics, outside = mlflow_run(tmp_path / "job"), tmp_path / "outside"
    outside.write_text("1500 0.5 1\n")
    (metrics / "link").symlink_to(outside)
    os.link(outside, metrics / "second")
    os.mkfifo(metrics / "pipe")
    (tmp_path / "job" / "mlflow.db").symlink_to(outside)
    found = files_of(tmp_path / "job").read({}, final=True)
    assert points_of(found) == []
    assert len(found.warnings) == 4


def test_of_a_metric_that_came_with_the_code_only_what_is_appended_is_read(tmp_path: Path) -> None:
    path = mlflow_run(tmp_path) / "loss"
    path.write_text("1500 0.5 1\n")
    brought = Brought.found_in(tmp_path)
    assert files_of(tmp_path, brought=brought).read({}, final=True) == CurvesRead()
    with path.open("a") as file:
        file.write("1501 0.25 2\n1502 0.125 3\n1503 0.0625 4\n")
    assert [step for _, step, _ in rest(files_of(tmp_path, brought=brought), {})] == [2, 3, 4]


def test_a_database_is_read_once_as_it_grows(tmp_path: Path) -> None:
    database, offsets = Database(tmp_path / "work" / "mlflow.db"), dict[str, int]()
    assert rest(files_of(tmp_path), offsets) == []
    database.log("loss", 0.5, step=1)
    database.log("bad", 0.0, step=1, is_nan=True)
    files = files_of(tmp_path)
    first = files.read(offsets, final=True)
    assert math.isnan({point.key: point.value for point in first.points["mlflow"]}["bad"])
    assert files_of(tmp_path).read(offsets, final=True).offsets == first.offsets  # it was not stored
    offsets.update(first.offsets)
    database.log("loss", 0.25, step=2)
    assert rest(files_of(tmp_path), offsets) == [("loss", 2, 0.25)]
    assert rest(files_of(tmp_path), offsets) == []


def test_rows_from_before_the_job_are_left_out(tmp_path: Path) -> None:
    database = Database(tmp_path / "mlflow.db")
    database.log("loss", 0.5, step=1, time=999)
    database.log("loss", 0.25, step=2, time=1000)
    assert rest(files_of(tmp_path, since_ms=1000), {}) == [("loss", 2, 0.25)]


def test_a_database_that_is_written_just_now_waits_and_is_read_at_the_end(tmp_path: Path) -> None:
    database = Database(tmp_path / "mlflow.db")
    database.log("loss", 0.5, step=1)
    journal = tmp_path / "mlflow.db-journal"
    journal.write_bytes(b"x")
    files = files_of(tmp_path)
    assert files.read({}, final=False) == CurvesRead()
    assert rest(files, {}) == [("loss", 1, 0.5)]


def test_a_database_with_a_log_beside_it_waits_until_that_is_merged(tmp_path: Path) -> None:
    database = Database(tmp_path / "mlflow.db")
    database.connection.execute("PRAGMA journal_mode = WAL")
    database.log("loss", 0.5, step=1)
    assert files_of(tmp_path).read({}, final=False) == CurvesRead()
    database.connection.close()
    assert rest(files_of(tmp_path), {}) == [("loss", 1, 0.5)]


def test_a_database_that_is_made_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path, offsets = tmp_path / "mlflow.db", dict[str, int]()
    database = Database(path)
    for step in range(5):
        database.log("loss", 0.5, step=step)
    rest(files_of(tmp_path), offsets)
    path.unlink()
    Database(path).log("loss", 0.25, step=9)
    assert rest(files_of(tmp_path), offsets) == [("loss", 9, 0.25)]


def test_more_rows_than_one_answer_has_are_read_in_several(tmp_path: Path) -> None:
    database = Database(tmp_path / "mlflow.db")
    rows = [("loss", 0.5, 1500, "0" * 32, step, False) for step in range(45_000)]
    database.connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.connection.commit()
    assert [step for _, step, _ in rest(files_of(tmp_path), {})] == [*range(45_000)]


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE other (x)",
        "CREATE VIEW metrics AS WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT x AS key FROM a",
        "CREATE TABLE metrics (key, value, timestamp, step, is_nan); INSERT INTO metrics VALUES (NULL, 1.0, 1, 1, 0)",
        "CREATE TABLE metrics (key, value); INSERT INTO metrics VALUES ('a', 1)",
        "CREATE TABLE metrics (key PRIMARY KEY, value, timestamp, step, is_nan) WITHOUT ROWID",
    ],
)
def test_a_database_of_another_make_gives_no_points(tmp_path: Path, statements: str) -> None:
    connection = sqlite3.connect(tmp_path / "mlflow.db")
    connection.executescript(statements)
    connection.close()
    files = files_of(tmp_path)
    assert rest(files, {}) == []


def test_rows_of_other_types_do_no_harm(tmp_path: Path) -> None:
    database = Database(tmp_path / "mlflow.db")
    database.log("loss", 0.5, step="x" * 100)
    database.log("x" * 5000, 0.5, step=1)
    database.log("late", 0.5, step=1, time=2**62)
    database.log("early", 0.5, step=-1)
    database.connection.execute("INSERT INTO metrics VALUES (?, ?, ?, '', ?, ?)", (b"\xff", b"\x00", "y", 3, "z"))
    database.connection.commit()
    found = files_of(tmp_path).read({}, final=True)
    assert [(point.key, point.step) for point in points_of(found)] == [("loss", 0), ("late", 1)]
    assert len(found.warnings) == 2


@pytest.mark.parametrize("place", [0, 16, 20, 100, 5000, 9000])
def test_a_damaged_database_does_no_harm(tmp_path: Path, place: int) -> None:
    database = Database(tmp_path / "mlflow.db")
    for step in range(100):
        database.log("loss", 0.5, step=step)
    database.connection.close()
    content = bytearray((tmp_path / "mlflow.db").read_bytes())
    content[place : place + 60] = b"\xa5" * 60
    (tmp_path / "mlflow.db").write_bytes(content)
    files = files_of(tmp_path)
    assert len(rest(files, {})) <= 100


def test_a_database_that_is_too_large_is_given_up(tmp_path: Path) -> None:
    Database(tmp_path / "mlflow.db").log("loss", 0.5, step=1)
    os.truncate(tmp_path / "mlflow.db", MOST_BYTES + 1)
    files = files_of(tmp_path)
    found = files.read({}, final=True)
    assert found.warnings == ["mlflow.db has more than 64 MiB, and is not read"]
    assert files.read({}, final=True) == CurvesRead()
    assert not files.unfinished
