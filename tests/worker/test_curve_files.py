"""The scalars of TensorBoard's event files become points, once each, whatever else the files hold."""

import base64
import hashlib
import math
import os
from pathlib import Path
import struct
import sys

import pytest

from store.output.facts import MetricPoint
from tests.approved import Approved
from tests.worker.curvefiles import files_of, points_of, rest
from tests.worker.eventfiles import NAME, event, nested, record, scalars, simple, tensor, varint, write
from worker.curves import budget, looking
from worker.curves.brought import MOST_ALIKE, Brought
from worker.curves.following import CurvesRead
from worker.curves.kinds import EVENTS

REAL = base64.b64decode(
    "SAAAAAAAAAD+kkidCTpz3UQKwdpBGg1icmFpbi5FdmVudDoyUi4KLHRlbnNvcmJvYXJkLnN1bW1hcnkud3JpdGVyLmV2ZW50X2Zp"
    "bGVfd3JpdGVyEpBFryAAAAAAAAAAKe2pUAlPed1ECsHaQRABKhMKEQoKdHJhaW4vbG9zcxUAAAA/Iv9fgyAAAAAAAAAAKe2pUAmU"
    "ed1ECsHaQRACKhMKEQoKdHJhaW4vbG9zcxUAAIA+CODF1zoAAAAAAAAAEpXq4gkyet1ECsHaQRABKi0KKwoOYS90ZXh0X3N1bW1h"
    "cnlCDwgHEgQSAggBQgVoZWxsb0oICgYKBHRleHT2QGkfMQAAAAAAAACdg4PpCXx63UQKwdpBEAMqJAoiCgluZXcgc3R5bGVCCAgB"
    "KgQAAABASgsKCQoHc2NhbGFycwQ0gkQ="
)
"""What torch.utils.tensorboard.SummaryWriter of TensorBoard wrote."""


def read(job: Path, offsets: dict[str, int] | None = None) -> CurvesRead:
    return files_of(job).read(offsets or {}, final=True)


def first_event(time: float) -> bytes:
    """What every file of TensorBoard begins with."""
    return record(b"\x09" + struct.pack("<d", time) + b"\x1a\x0dbrain.Event:2")


def test_a_file_that_tensorboard_wrote_is_read(tmp_path: Path) -> None:
    write(tmp_path / "runs" / NAME, REAL)
    assert [(point.key, point.step, point.value) for point in points_of(read(tmp_path))] == [
        ("train/loss", 1, 0.5),
        ("train/loss", 2, 0.25),
        ("new style", 3, 2.0),
    ]


def test_scalars_of_both_kinds_are_read_and_all_else_is_left_out(tmp_path: Path) -> None:
    half = varint(int.from_bytes(struct.pack("<e", 1.5), "little"))
    values = [
        simple("simple", -0.5),
        simple("nan", math.nan),
        tensor("float", 1, nested(4, struct.pack("<f", 2.5))),
        tensor("listed", 1, b"\x2d" + struct.pack("<f", 3.5), dims=(1, 1)),
        tensor("packed", 2, nested(6, struct.pack("<d", 4.5))),
        tensor("whole", 9, b"\x50" + varint(-7)),
        tensor("half", 19, b"\x68" + half),
        tensor("vector", 1, nested(5, struct.pack("<f", 1.0)), dims=(3,)),
        tensor("text", 7, nested(8, b"hello"), plugin=b"text"),
        tensor("curve", 1, nested(4, struct.pack("<f", 1.0)), plugin=b"pr_curves"),
        nested(1, b"histogram") + nested(5, b""),
    ]
    write(tmp_path / NAME, record(b"\x1a\x0dbrain.Event:2") + record(event(7, *values)))
    found = read(tmp_path)
    assert found.warnings == []
    assert {point.step for point in points_of(found)} == {7}
    assert {point.time for point in points_of(found)} == {1_500_000}
    seen = {point.key: point.value for point in points_of(found)}
    assert math.isnan(seen.pop("nan"))
    assert seen == {"simple": -0.5, "float": 2.5, "listed": 3.5, "packed": 4.5, "whole": -7.0, "half": 1.5}


def test_a_growing_file_is_read_once_wherever_it_is_cut(tmp_path: Path) -> None:
    content = scalars("loss", {step: step / 2 for step in range(20)})
    path = write(tmp_path / NAME, b"")
    files, offsets = files_of(tmp_path, look_s=0), dict[str, int]()
    found: list[tuple[str, int, float]] = []
    for size in range(0, len(content) + 7, 7):
        path.write_bytes(content[:size])
        found += rest(files, offsets, final=False)
        files = files_of(tmp_path, look_s=0)  # as after a restart of the worker
    assert found == [("loss", step, step / 2) for step in range(20)]


def test_a_part_that_was_not_stored_is_read_again(tmp_path: Path) -> None:
    write(tmp_path / NAME, scalars("loss", {1: 0.5}))
    files = files_of(tmp_path)
    assert files.read({}, final=True) == files.read({}, final=True)


def test_a_folder_below_another_or_of_a_split_is_named_in_the_key(tmp_path: Path) -> None:
    one = scalars("loss", {1: 1.0})
    for folder in ("runs/a", "runs/a/loss_best", "keras/validation", "other"):
        write(tmp_path / folder / NAME, one)
    assert [point.key for point in points_of(read(tmp_path))] == ["loss", "validation/loss", "loss", "loss_best/loss"]


def test_tags_that_are_no_names_of_metrics_are_left_out_with_one_warning(tmp_path: Path) -> None:
    tags = [b"x" * 1000, b"", b"\xff\xfe", b"a" * 201, b"line\nbreak", b"ok"]
    write(tmp_path / NAME, b"".join(record(event(1, simple(tag, 1.0))) for tag in tags))
    found = read(tmp_path)
    assert [point.key for point in points_of(found)] == ["line_break", "ok"]
    (warning,) = found.warnings
    assert "1 to 200 characters" in warning
    assert len(warning) < 500


def test_a_tag_of_a_megabyte_is_skipped_with_its_record_and_what_follows_is_read(
    tmp_path: Path, approved: Approved
) -> None:
    write(tmp_path / NAME, record(event(1, simple(b"x" * (1 << 20), 1.0))) + scalars("loss", {2: 0.5}))
    files, offsets = files_of(tmp_path), dict[str, int]()
    first = files.read(offsets, final=True)
    assert points_of(first) == [] and first.warnings[0] == approved("warnings")
    offsets.update(first.offsets)
    assert rest(files, offsets) == [("loss", 2, 0.5)]


@pytest.mark.parametrize("place", [0, 9, 20, -2])
def test_a_damaged_file_is_read_up_to_the_damage(tmp_path: Path, place: int, approved: Approved) -> None:
    wrong = bytearray(scalars("loss", {2: 0.5}))
    wrong[place] ^= 1
    write(tmp_path / NAME, scalars("loss", {1: 1.0}) + bytes(wrong) + scalars("loss", {3: 1.0}))
    files = files_of(tmp_path)
    found = files.read({}, final=True)
    assert [point.step for point in points_of(found)] == [1]
    assert found.warnings[0] == approved("warnings")
    assert files.read(found.offsets, final=True) == CurvesRead()


@pytest.mark.parametrize("content", [b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 11, b"\x0b", b"\x2a\x02\x0a\x09"])
def test_a_malformed_event_is_left_out(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / NAME, record(content) + scalars("loss", {1: 1.0}))
    found = read(tmp_path)
    assert [point.step for point in points_of(found)] == [1]
    assert "cannot read an event" in found.warnings[0]


def test_random_bytes_never_break_the_reader(tmp_path: Path) -> None:
    for seed in range(300):
        size = seed % 97
        content = bytes((seed * 31 + place * place * 7) % 256 for place in range(size))
        write(tmp_path / NAME, record(content) + record(b"\x2a" + varint(size) + content))
        assert all(isinstance(point, MetricPoint) for point in points_of(read(tmp_path)))


def test_a_negative_step_and_a_time_that_is_none_do_no_harm(tmp_path: Path) -> None:
    times = [math.nan, math.inf, -5.0, 1e300, sys.float_info.max]
    content = [record(event(-1, simple("a", 1.0))), *(record(event(1, simple("a", 1.0), time=time)) for time in times)]
    write(tmp_path / NAME, b"".join(content))
    found = read(tmp_path)
    assert [point.time for point in points_of(found)] == [0, 0, 0, *[253_402_300_799_999_999] * 2]
    assert "at step -1" in found.warnings[0]


def test_links_pipes_and_second_names_are_not_read(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / NAME, scalars("secret", {1: 1.0}))
    job = tmp_path / "job"
    job.mkdir()
    (job / NAME).symlink_to(outside)
    (job / "folder").symlink_to(outside.parent)
    os.link(outside, job / f"{NAME}.second")
    os.mkfifo(job / f"{NAME}.pipe")
    found = read(job)
    assert points_of(found) == []
    assert len(found.warnings) == 3


def test_a_file_that_became_a_pipe_or_a_link_is_given_up(tmp_path: Path, approved: Approved) -> None:
    path = write(tmp_path / NAME, scalars("loss", {1: 1.0}))
    files, offsets = files_of(tmp_path), dict[str, int]()
    assert rest(files, offsets) == [("loss", 1, 1.0)]
    path.unlink()
    os.mkfifo(path)
    assert files.read(offsets, final=True).warnings[0] == approved("warnings")
    assert files.read(offsets, final=True) == CurvesRead()


def test_a_shorter_file_is_read_from_its_start_and_a_new_one_beside_the_old(tmp_path: Path) -> None:
    path = write(tmp_path / NAME, scalars("loss", {1: 1.0, 2: 1.0}))
    files, offsets = files_of(tmp_path), dict[str, int]()
    rest(files, offsets, final=False)
    path.write_bytes(scalars("loss", {3: 1.0}))
    write(tmp_path / f"{NAME}.v2", scalars("loss", {4: 1.0}))
    assert rest(files, offsets) == [("loss", 3, 1.0), ("loss", 4, 1.0)]


def test_of_files_that_were_there_before_only_what_is_appended_is_read(tmp_path: Path) -> None:
    old = first_event(1.25) + scalars("loss", dict.fromkeys(range(500), 1.0))
    path = write(tmp_path / "runs" / NAME, old)
    brought = Brought.found_in(tmp_path)
    write(tmp_path / "copied" / NAME, old)
    os.utime(path)
    files, offsets = files_of(tmp_path, brought=brought), dict[str, int]()
    assert files.read(offsets, final=False) == CurvesRead()
    path.write_bytes(old + scalars("loss", {7: 0.5}))
    path.rename(tmp_path / "runs" / f"{NAME}.renamed")
    assert rest(files, offsets) == [("loss", 7, 0.5)]
    with (tmp_path / "copied" / NAME).open("ab") as file:
        file.write(scalars("loss", {8: 0.5}))
    files = files_of(tmp_path, brought=brought)  # as after a restart of the worker
    assert rest(files, offsets) == [("loss", 8, 0.5)]


def test_a_file_that_replaced_one_from_before_is_read_from_its_start(tmp_path: Path) -> None:
    path = write(tmp_path / NAME, first_event(1.25) + scalars("loss", {1: 1.0}))
    brought = Brought.found_in(tmp_path)
    for time, values in ((2.5, {2: 1.0}), (2.75, {3: 1.0}), (3.0, {4: 1.0, 5: 1.0})):
        path.write_bytes(first_event(time) + scalars("loss", values))
        assert rest(files_of(tmp_path, brought=brought), {}) == [("loss", step, 1.0) for step in values]


def test_files_from_before_take_no_place_of_new_ones_and_name_no_folder(tmp_path: Path) -> None:
    for number in range(EVENTS.most + 5):
        write(tmp_path / str(number) / NAME, first_event(number) + scalars("loss", {1: 1.0}))
    write(tmp_path / NAME, first_event(0.5))
    brought = Brought.found_in(tmp_path)
    write(tmp_path / "new" / NAME, scalars("loss", {2: 1.0}))
    files = files_of(tmp_path, brought=brought)
    found = files.read({}, final=True)
    assert [(point.key, point.step) for point in points_of(found)] == [("loss", 2)]
    assert found.warnings == []


def alike(folder: Path, count: int) -> None:
    """Writes files that begin with the same event, and are all different."""
    for number in range(count):
        values = dict.fromkeys(range(number + 1), float(number))
        write(folder / f"{number:04}" / NAME, first_event(1.25) + scalars("loss", values))


def test_each_file_is_compared_with_a_few_from_before_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(tmp_path, 60)
    brought = Brought.found_in(tmp_path)
    alike(tmp_path / "own", 60)
    digests, digest = list[int](), hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda data: digests.append(len(data)) or digest(data))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(looking, "_LOOK_SHARE", 0)
    files = files_of(tmp_path, brought=brought, look_s=0)
    files.read({}, final=False)
    assert 120 < len(digests) <= 120 * (MOST_ALIKE + 1)  # one is of the file's name
    digests.clear()
    files.read({}, final=False)
    assert len(digests) <= 3 * 120  # the names of the files


def test_files_that_are_alike_are_remembered_up_to_a_number(tmp_path: Path) -> None:
    alike(tmp_path, MOST_ALIKE + 20)
    (endings,) = Brought.found_in(tmp_path).endings.values()
    assert len(endings) == MOST_ALIKE


def test_a_stop_ends_the_look_at_files_from_before(tmp_path: Path) -> None:
    alike(tmp_path, 3)

    class Wanted(Exception):
        pass

    def stop() -> None:
        raise Wanted

    with pytest.raises(Wanted):
        Brought.found_in(tmp_path, check=stop)


def test_files_beyond_those_of_one_look_wait_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST_COMPARED", 10)
    for number in range(25):
        write(tmp_path / f"{number:02}" / NAME, first_event(number) + scalars("loss", {1: 1.0}))
    brought = Brought.found_in(tmp_path)
    write(tmp_path / "z" / "z" / NAME, first_event(99) + scalars("loss", {2: 1.0}))
    files = files_of(tmp_path, brought=brought)
    assert files.read({}, final=False) == CurvesRead()
    assert not files.unfinished
    assert files.read({}, final=True) == CurvesRead()
    assert files.unfinished
    found = files.read({}, final=True)
    assert [(point.key, point.step) for point in points_of(found)] == [("loss", 2)]
    assert files.read(found.offsets, final=True) == CurvesRead()
    assert not files.unfinished


def test_after_the_end_files_are_searched_once(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    assert files.read({}, final=False) == files.read({}, final=True) == CurvesRead()
    write(tmp_path / NAME, scalars("loss", {1: 1.0}))
    assert files.read({}, final=True) == CurvesRead()


def test_more_than_a_hundred_files_are_not_read(tmp_path: Path, approved: Approved) -> None:
    for number in range(EVENTS.most + 5):
        write(tmp_path / f"run-{number:03}" / NAME, scalars("loss", {number: 1.0}))
    files, offsets = files_of(tmp_path), dict[str, int]()
    first = files.read(offsets, final=True)
    offsets.update(first.offsets)
    assert len(points_of(first)) == len(offsets) == EVENTS.most
    assert first.warnings[0] == approved("warnings")
    assert points_of(files_of(tmp_path).read(offsets, final=True)) == []


def test_a_flood_is_read_at_a_bounded_rate_and_its_rest_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "FINAL_BYTES", 1 << 20)
    now = 1000.0
    monkeypatch.setattr(looking.time, "monotonic", lambda: now)
    content = scalars("loss", dict.fromkeys(range(1000), 1.0)) * 200
    assert len(content) > 4 << 20
    write(tmp_path / NAME, content)
    files, offsets = files_of(tmp_path, look_s=0), dict[str, int]()
    rest(files, offsets, final=False)
    (offset,) = offsets.values()
    assert offset <= budget.BYTES_PER_SECOND + (1 << 18)
    rest(files, offsets)
    (last,) = offsets.values()
    assert offset < last <= offset + (1 << 20) + (1 << 18)
