"""What an attempt shows, whatever the lines and files of its run directory hold."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import struct
from typing import Any

import pytest

from store.blobs.folder import BlobFolder
from store.output.facts import Batch, NewMedia
from tests.approved import Approved
from tests.worker.attempts.output.relays import announce, drain, relay_of, store, storing, texts, write_checkpoint
from torchyard.contract.attempts.rundir import RunDir
from torchyard.run.images import picture_bytes
from worker.attempts.masking import masked_batch
from worker.attempts.output import media
from worker.attempts.output.relay import Relay
from worker.host.mask import Mask

PICTURE = picture_bytes([[0, 255, 7]])


@pytest.fixture
def run(run: RunDir) -> RunDir:
    run.media.mkdir()
    return run


def show(run: RunDir, content: bytes = PICTURE, *, name: str = "a.png", **values: Any) -> None:
    """Writes an image, and its line, as the job's own program may."""
    (run.media / name).write_bytes(content)
    say(run, **{"kind": "image", "files": {"image": name}} | values)


def say(run: RunDir, **values: Any) -> None:
    line = {"type": "media", "time": 1, "key": "a", "step": 1, **values}
    with run.events.open("a") as file:
        file.write(json.dumps(line) + "\n")


def items(batches: list[Batch]) -> list[NewMedia]:
    return [item for batch in batches for item in batch.media]


def blobs_of(run: RunDir) -> list[bytes]:
    root = run.root.parent / "blobs"
    assert [*root.glob("incoming/*")] == []
    return sorted(path.read_bytes() for path in root.glob("??/*"))


def refused(run: RunDir) -> str:
    """Returns why nothing is stored, of which one message tells."""
    batches = drain(relay_of(run))
    assert (items(batches), blobs_of(run)) == ([], [])
    (text,) = texts(batches)
    return text


def test_an_item_is_stored_while_the_attempt_runs_once_its_bytes_are(run: RunDir) -> None:
    relay = relay_of(run)
    show(run, caption="ä", classes=["x"], number=3)
    (item,) = items(drain(relay))
    assert (item.key, item.kind, item.step, item.number) == ("a", "image", 1, 3)
    assert (item.caption, item.classes, item.data) == ("ä", ["x"], None)
    (picture,) = item.pictures
    assert (picture.part, picture.media_type, picture.width, picture.height) == ("image", "image/png", 3, 1)
    with BlobFolder(run.root.parent / "blobs").open(picture.sha256) as blob:
        assert blob.read() == PICTURE
    assert drain(relay, final=True) == []


def test_what_a_batch_that_is_not_stored_copied_is_copied_again(run: RunDir) -> None:
    show(run)
    relay = relay_of(run)
    batch = relay.read()
    assert batch is not None
    with pytest.raises(RuntimeError), storing(relay, batch):
        raise RuntimeError("the database is away")
    relay = relay_of(run)  # a later worker
    (item,) = items(drain(relay))
    assert blobs_of(run) == [PICTURE]
    assert len(item.pictures) == 1
    relay.close()


def test_data_is_stored_as_it_is_checked(run: RunDir) -> None:
    say(run, kind="text", data={"text": "t\x00", "other": 1})
    say(run, kind="histogram", data={"edges": [0, 1e300], "counts": [2]}, step=2**63 - 1)
    say(run, kind="table", data={"columns": ["a"], "rows": [[float("nan")], [None], ["x"]]})
    say(run, kind="confusion", data={"classes": ["a"], "matrix": [[3]], "note": "n" * 9999})
    found = items(drain(relay_of(run)))
    assert [item.data for item in found[:2]] == [
        {"note": None, "text": "t\x00", "expected": None},
        {"note": None, "edges": [0.0, 1e300], "counts": [2]},
    ]
    assert found[2].data is not None
    assert found[2].data["rows"] == [["NaN"], [None], ["x"]]
    assert found[3].data == {"note": "n" * 500, "classes": ["a"], "matrix": [[3]]}


@pytest.mark.parametrize(
    "values",
    [
        {"key": ""},
        {"key": "a\nb"},
        {"key": "a" * 201},
        {"key": "\ud800"},
        {"key": 5},
        {"step": -1},
        {"step": 2**63},
        {"step": 1.5},
        {"step": None},
        {"number": 10_000},
        {"number": -1},
        {"kind": "svg"},
        {"caption": "c" * 1001},
        {"classes": ["c"] * 1001},
        {"classes": ["c" * 201]},
        {"classes": "abc"},
        {"files": {"image": "../../ctl/plan.json"}},
        {"files": {"image": "/etc/passwd"}},
        {"files": {"image": ".hidden"}},
        {"files": {"image": ""}},
        {"files": {"other": "a.png"}},
        {"files": ["a.png"]},
        {"data": [1]},
    ],
)
def test_a_line_with_a_wrong_field_is_no_event(run: RunDir, values: dict[str, Any], approved: Approved) -> None:
    show(run, **values)
    assert refused(run) == approved.of_row("refused")


@pytest.mark.parametrize(
    "values",
    [
        {"files": {}},
        {"files": {"truth": "a.png"}},
        {"data": {"text": "t"}},
        {"kind": "overlay"},
        {"kind": "text"},
        {"kind": "text", "files": {}},
        {"kind": "text", "data": {"text": "t"}},
    ],
)
def test_an_item_has_the_files_or_the_data_of_its_kind(run: RunDir, values: dict[str, Any], approved: Approved) -> None:
    show(run, **values)
    assert refused(run) == approved.of_row("refused")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("text", {"text": "x" * 66_000}),
        ("text", {"text": 5}),
        ("text", {}),
        ("histogram", {"edges": [0.0, 1.0], "counts": [1, 2]}),
        ("histogram", {"edges": [1.0, 0.0], "counts": [1]}),
        ("histogram", {"edges": [0.0, float("nan")], "counts": [1]}),
        ("histogram", {"edges": [0.0, 1.0], "counts": [-1]}),
        ("histogram", {"edges": [*range(1002)], "counts": [1] * 1001}),
        ("table", {"columns": ["a"], "rows": [["x", "y"]]}),
        ("table", {"columns": ["a"], "rows": [[["nested"]]]}),
        ("table", {"columns": ["a"] * 101, "rows": []}),
        ("table", {"columns": ["a" * 201], "rows": []}),
        ("confusion", {"classes": ["a"], "matrix": [[1, 2]]}),
        ("confusion", {"classes": ["a"], "matrix": [["Infinity"]]}),
        ("confusion", {"classes": ["a", "a"], "matrix": [[1]]}),
    ],
)
def test_wrong_data_is_not_stored(run: RunDir, kind: str, data: dict[str, Any], approved: Approved) -> None:
    say(run, kind=kind, data=data)
    assert refused(run) == approved.of_row("refused", kind=kind)


def link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def behind_a_link(file: Path) -> None:
    file.unlink()
    file.parent.rmdir()
    (file.parents[2] / "outside").mkdir()
    (file.parents[2] / "outside" / "a.png").write_bytes(PICTURE)
    file.parent.symlink_to(file.parents[2] / "outside")


def other_name(file: Path) -> None:
    os.link(file, file.parents[2] / "other")


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def endless(file: Path) -> None:
    os.truncate(file, 1 << 40)


def holding(content: bytes) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        file.write_bytes(content)

    return change


@pytest.mark.parametrize(
    "change",
    [
        link,
        behind_a_link,
        other_name,
        pipe,
        folder,
        Path.unlink,
        holding(b"<svg/>" * 100),
        holding(b"<!doctype html><script>" + PICTURE),
        holding(b""),
        holding(PICTURE[:16] + struct.pack(">II", 2**31, 9) + PICTURE[24:]),
        endless,
    ],
)
def test_what_is_no_picture_of_the_run_directory_is_not_stored(
    run: RunDir, change: Callable[[Path], object], approved: Approved
) -> None:
    show(run)
    change(run.media / "a.png")
    assert refused(run) == approved.of_row("refused")


def test_what_is_checked_is_what_is_stored(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def swapping(content: bytes) -> Any:
        (run.media / "a.png").write_bytes(b"<svg>")
        return checked(content)

    checked = media.picture_of
    monkeypatch.setattr(media, "picture_of", swapping)
    show(run)
    drain(relay_of(run))
    assert blobs_of(run) == [PICTURE]


def test_of_an_overlay_with_one_wrong_file_nothing_is_stored(run: RunDir, approved: Approved) -> None:
    (run.media / "b.png").write_bytes(b"<svg>")
    show(run, kind="overlay", files={"image": "a.png", "truth": "b.png"})
    assert refused(run) == approved("refused")


def test_few_messages_tell_of_many_wrong_items(run: RunDir, approved: Approved) -> None:
    for step in range(200):
        say(run, kind="image", files={"image": "gone.png"}, step=step)
    found = texts(drain(relay_of(run)))
    assert len(found) == 10
    assert found[-1] == approved("found")


def test_a_batch_has_a_bounded_number_of_bytes(run: RunDir) -> None:
    noise = PICTURE + b"\0" * (3 << 20)
    for step in range(8):
        show(run, noise, name=f"{step}.png", step=step)
    for step in range(100):
        say(run, kind="text", data={"text": "t"}, step=step, key="t")
    batches = drain(relay_of(run))
    assert [len(batch.media) for batch in batches] == [3, 3, 102]
    assert [item.step for item in items(batches)] == [*range(8), *range(100)]


def test_checkpoints_and_items_are_stored_in_their_order(run: RunDir) -> None:
    write_checkpoint(run, "epoch-1")
    write_checkpoint(run, "epoch-2")
    say(run, kind="text", data={"text": "1"})
    announce(run, "epoch-1")
    say(run, kind="text", data={"text": "2"})
    announce(run, "epoch-2")
    batches = drain(relay_of(run))
    assert [(len(batch.media), len(batch.checkpoints)) for batch in batches] == [(1, 0), (0, 1), (1, 0), (0, 1)]


def test_of_an_attempt_that_may_store_no_more_nothing_is_copied(run: RunDir) -> None:
    show(run)
    say(run, kind="text", data={"text": "1"})
    relay = relay_of(run)
    batch = relay.read(media=False)
    assert batch is not None
    assert (batch.media, blobs_of(run)) == ([], [])
    store(relay, batch)
    assert relay.read() is None


def test_secrets_are_masked_in_texts(run: RunDir) -> None:
    secret = "hunter2-hunter2"
    show(run, key=f"k {secret}", caption=f"c {secret}", classes=[secret])
    say(run, kind="table", data={"columns": [secret], "rows": [[f"x{secret}"]], "note": secret})
    (batch,) = drain(relay_of(run))
    masked = masked_batch(batch, Mask([secret]))
    assert secret not in repr(masked)
    assert masked.media[0].key == "k ***"
    assert masked.media[0].pictures == batch.media[0].pictures


def test_secrets_that_were_cut_in_two_are_masked(run: RunDir) -> None:
    secret, key = "hunter2-hunter2", "k" * 50
    show(run, caption=f"a {secret[:9]}…", classes=[secret[:9]])
    say(run, kind="text", data={"text": f"line\na {secret[:9]}"})
    relay = Relay(run, BlobFolder(run.root.parent / "blobs"), listed=(), world_size=1, mask=Mask([secret]))
    say(run, key=f"{key}{secret}", kind="text", data={})
    (batch,) = drain(relay)
    masked = masked_batch(batch, Mask([secret]))
    assert "hunter" not in repr(masked)
    assert (masked.media[0].caption, masked.media[1].data) == (
        "a ***…",
        {"note": None, "text": "line\na ***", "expected": None},
    )


@pytest.mark.parametrize("secret", ["textbook-1", "of-my-columns"])
def test_a_secret_that_begins_or_ends_as_keys_of_data_do_leaves_these(run: RunDir, secret: str) -> None:
    say(run, kind="text", key="t", data={"text": secret})
    say(run, kind="table", key="u", data={"columns": [secret], "rows": []})
    (batch,) = drain(relay_of(run))
    masked = masked_batch(batch, Mask([secret]))
    assert [item.data for item in masked.media] == [
        {"note": None, "text": "***", "expected": None},
        {"note": None, "columns": ["***"], "rows": []},
    ]
