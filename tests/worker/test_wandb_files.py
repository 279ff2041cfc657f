"""The history of wandb's files becomes points, once each, whatever else the files hold."""

import math
from pathlib import Path

import pytest

from tests.worker.curvefiles import files_of, history, points_of, rest, wandb_log
from tests.worker.eventfiles import nested, write
from worker.curves.following import CurvesRead

NAME = "wandb/offline-run-20260101_120000-abcdefgh/run-abcdefgh.wandb"


def test_numbers_become_points_and_all_else_is_left_out(tmp_path: Path) -> None:
    values: dict[str, object] = {
        "train/loss": 0.5,
        "whole": 7,
        "nan": math.nan,
        "quoted": "NaN",
        "low": "-Infinity",
        "huge": 10**400,
        "text": "0.5",
        "truth": True,
        "picture": {"_type": "image-file", "size": 1},
        "list": [1, 2],
        "nothing": None,
    }
    other = nested(7, nested(1, b"stats"))
    write(tmp_path / NAME, wandb_log(other, history(3, values), history(4, {"old": 1.5}, nested_keys=False)))
    found = files_of(tmp_path).read({}, final=True)
    seen = {point.key: point.value for point in found.points["wandb"]}
    assert math.isnan(seen.pop("nan")) and math.isnan(seen.pop("quoted"))
    assert seen == {"train/loss": 0.5, "whole": 7.0, "low": -math.inf, "old": 1.5}
    assert {(point.step, point.time) for point in found.points["wandb"]} == {(3, 1_500_000), (4, 1_500_000)}
    assert found.warnings == []


@pytest.mark.parametrize("stride", [11, 30_000])
def test_a_growing_file_is_read_once_wherever_it_is_cut(tmp_path: Path, stride: int) -> None:
    count = 40 if stride < 100 else 3000
    content = wandb_log(*(history(step, {"loss": step / 2}) for step in range(count)))
    path = write(tmp_path / NAME, b"")
    offsets, found = dict[str, int](), list[tuple[str, int, float]]()
    for size in range(0, len(content) + stride, stride):
        path.write_bytes(content[:size])
        found += rest(files_of(tmp_path, look_s=0), offsets, final=False)  # each as after a restart of the worker
    assert found == [("loss", step, step / 2) for step in range(count)]


def test_a_record_of_several_blocks_is_read_and_one_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    long, longer = (history(step, {"text": "x" * size, "loss": 1.0}) for step, size in ((1, 90_000), (2, 900_000)))
    write(tmp_path / NAME, wandb_log(long, longer, history(3, {"loss": 0.5})))
    files, offsets = files_of(tmp_path), dict[str, int]()
    first = files.read(offsets, final=True)
    offsets.update(first.offsets)
    assert [(point.step, point.value) for point in points_of(first)] == [(1, 1.0)]
    warnings = list[str]()
    found: list[int] = []
    while (part := files.read(offsets, final=True)).offsets or files.unfinished:
        offsets.update(part.offsets)
        found += [point.step for point in points_of(part)]
        warnings += part.warnings
    assert found == [3]
    (warning,) = warnings
    assert "has records of more than 262080 bytes, which are left out" in warning


def test_after_a_damaged_block_the_next_is_read(tmp_path: Path) -> None:
    content = bytearray(wandb_log(*(history(step, {"loss": 1.0}) for step in range(2000))))
    assert len(content) > 3 << 15
    content[(1 << 15) + 30] ^= 1
    write(tmp_path / NAME, bytes(content))
    files, offsets = files_of(tmp_path), dict[str, int]()
    steps = [step for _, step, _ in rest(files, offsets)]
    assert len(steps) == len({*steps}) and 0 in steps and 1999 in steps
    assert 1000 < len(steps) < 2000


@pytest.mark.parametrize("content", [b"no file of wandb at all", bytes(70_000), b":W&B\xe1\xbe\x00" + b"\xff" * 70_000])
def test_what_is_no_such_file_gives_no_points_and_is_read_once(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / NAME, content)
    files, offsets = files_of(tmp_path), dict[str, int]()
    assert rest(files, offsets) == []
    assert files.read(offsets, final=True) == CurvesRead()


@pytest.mark.parametrize("record", [b"\x12\xff", b"\x12\x02\x0a\x09", b"\xff" * 20, nested(2, nested(1, b"\x0b"))])
def test_a_malformed_record_is_left_out(tmp_path: Path, record: bytes) -> None:
    write(tmp_path / NAME, wandb_log(record, history(1, {"loss": 0.5})))
    found = files_of(tmp_path).read({}, final=True)
    assert [point.step for point in points_of(found)] == [1]
    assert "cannot read something of" in found.warnings[0]


def test_a_negative_step_is_left_out(tmp_path: Path) -> None:
    record = b"\x08\x01" + nested(2, nested(1, nested(2, b"loss") + nested(16, b"1.0")))
    write(tmp_path / NAME, wandb_log(record, history(1, {"loss": 0.5})))
    found = files_of(tmp_path).read({}, final=True)
    assert [point.step for point in points_of(found)] == [1]
    assert "at step -1" in found.warnings[0]
