"""What a script shows: pictures, histograms, tables, texts and confusion matrices."""

from collections.abc import Generator
from io import BytesIO
import json
import math
import os
from pathlib import Path
import resource
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from torchyard.contract.attempts.events import Shown, parse_line
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.media.data import media_data, size_of
from torchyard.contract.media.kinds import DATA_BYTES, MediaKind
from torchyard.run.context import Run


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


@pytest.fixture
def run(folder: RunDir) -> Run:
    return Run({Env.RUN_DIR: str(folder.job)})


def lines(folder: RunDir, run: Run) -> list[Shown]:
    run.flush()
    raw = folder.events.read_bytes().splitlines() if folder.events.exists() else []
    return [line for each in raw if isinstance(line := parse_line(each), Shown)]


def warnings(folder: RunDir, run: Run) -> list[str]:
    run.flush()
    return [item["text"] for raw in folder.events.read_text().splitlines() if (item := json.loads(raw)).get("text")]


def pixels(folder: RunDir, line: Shown, part: str = "image") -> np.ndarray:
    return np.asarray(Image.open(folder.media / line.files[part]))  # pyright: ignore[reportArgumentType]


CHECKER = (np.indices((5, 7)).sum(0) % 2 * 255).astype("uint8")


@pytest.mark.parametrize(
    "image",
    [
        CHECKER,
        CHECKER[:, :, None],
        CHECKER[None],
        CHECKER / 255,
        CHECKER.astype("int64"),
        CHECKER > 0,
        (CHECKER > 0).tolist(),
        torch.tensor(CHECKER),
        torch.tensor(CHECKER)[None].float() / 255,
        torch.tensor(CHECKER > 0),
        torch.tensor(CHECKER / 255).to(torch.bfloat16).requires_grad_(),
        Image.fromarray(CHECKER),
    ],
)
def test_arrays_tensors_and_pictures_of_pil_become_png(folder: RunDir, run: Run, image: Any) -> None:
    run.log_image("val/a", [image], step=3)
    (line,) = lines(folder, run)
    assert (line.key, line.kind, line.step, line.number) == ("val/a", MediaKind.IMAGE, 3, 0)
    assert (pixels(folder, line) == CHECKER).all()


def test_colours_are_first_or_last(folder: RunDir, run: Run) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype="uint8")
    run.log_image("a", colours, step=1)
    run.log_image("a", colours.transpose(2, 0, 1), step=2)
    run.log_image("a", torch.tensor(colours).permute(2, 0, 1), step=3)
    run.log_image("a", Image.fromarray(colours, "RGB").convert("CMYK"), step=4)
    first, second, third, fourth = lines(folder, run)
    assert all((pixels(folder, line) == colours).all() for line in (first, second, third))
    assert pixels(folder, fourth).shape == (5, 7, 3)


def test_files_are_taken_as_they_are(folder: RunDir, run: Run, tmp_path: Path) -> None:
    file = BytesIO()
    Image.fromarray(CHECKER).save(file, "JPEG")
    (tmp_path / "a.jpg").write_bytes(file.getvalue())
    run.log_image("a", file.getvalue(), step=1)
    run.log_image("a", tmp_path / "a.jpg", step=2)
    for line in lines(folder, run):
        assert line.files["image"].endswith(".jpg")
        assert (folder.media / line.files["image"]).read_bytes() == file.getvalue()


def test_a_figure_is_saved(folder: RunDir, run: Run) -> None:
    class Figure:
        def savefig(self, file: BytesIO, *, format: str) -> None:
            Image.fromarray(CHECKER).save(file, format)

    run.log_image("a", Figure(), step=1)
    assert (pixels(folder, lines(folder, run)[0]) == CHECKER).all()


def test_masks_make_an_overlay(folder: RunDir, run: Run) -> None:
    truth = np.array([[0, 1, 255]])
    picture = np.zeros((1, 3, 3), "uint8")
    run.log_image("a", picture, step=1, truth=truth, predicted=torch.tensor(truth), classes=["none", "crack"])
    run.log_image("b", [picture, picture], step=1, caption=["x", "y" * 2000], predicted=[truth, None], number=4)
    both, one, none = lines(folder, run)
    assert (both.kind, both.classes) == (MediaKind.OVERLAY, ["none", "crack"])
    assert [*both.files] == ["image", "truth", "predicted"]
    for part in ("truth", "predicted"):
        assert pixels(folder, both, part).tolist() == [[0, 1, 255]]
    assert [(line.kind, line.number, len(line.caption or "")) for line in (one, none)] == [
        (MediaKind.OVERLAY, 4, 1),
        (MediaKind.IMAGE, 5, 1000),
    ]


@pytest.mark.parametrize(
    "image",
    [
        b"<svg></svg>",
        np.zeros((2, 2, 5)),
        np.zeros((0, 2)),
        np.zeros(3),
        object(),
        {"a": 1},
    ],
)
def test_what_is_no_picture_is_refused_by_name(run: Run, image: Any, approved: Approved) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        run.log_image("a", image, step=1)
    assert str(raised.value) == approved.of_row("message")


def test_wrong_masks_steps_numbers_and_keys_are_refused(run: Run, approved: Approved) -> None:
    with pytest.raises(ValueError) as below:
        run.log_image("a", CHECKER, step=1, truth=np.array([[-1, 1]]))
    assert str(below.value) == approved("below zero")
    with pytest.raises(ValueError) as deep:
        run.log_image("a", CHECKER, step=1, truth=np.zeros((1, 2, 3)))
    assert str(deep.value) == approved("three sides")
    with pytest.raises(ValueError) as few:
        run.log_image("a", [CHECKER, CHECKER], step=1, caption=["a"])
    assert str(few.value) == approved("few captions")
    for step in (-1, 2**63):
        with pytest.raises(ValueError) as outside:
            run.log_text("a", "t", step=step)
        assert str(outside.value) == approved("step", step=step)
    with pytest.raises(ValueError) as many:
        run.log_text("a", "t", step=1, number=10_000)
    assert str(many.value) == approved("number")
    for key in ("a\nb", "", "a" * 201):
        with pytest.raises(ValueError, match="key"):
            run.log_text(key, "t", step=1)


def test_what_is_too_large_is_left_out_with_one_warning(folder: RunDir, run: Run, approved: Approved) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1800, 1800, 3), dtype="uint8")
    for step in (1, 2):
        run.log_image("a", noise, step=step)
    assert lines(folder, run) == []
    assert [*map(len, os.walk(folder.media))] == []
    (text,) = warnings(folder, run)
    assert text == approved("text")


def test_a_folder_that_cannot_be_written_does_not_end_the_training(
    folder: RunDir, run: Run, approved: Approved
) -> None:
    folder.media.write_text("a file in its place")
    run.log_image("a", CHECKER, step=1)
    assert lines(folder, run) == []
    assert warnings(folder, run)[0] == approved("warnings")


@pytest.fixture
def small_files() -> Generator[int]:
    """No file of this process gets larger: a stand-in for a full disk."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE), 4096
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    yield most
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_is_left_of_an_item_that_finds_no_room(folder: RunDir, run: Run, small_files: int) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (small_files, 1), dtype="uint8")
    run.log_image("walls", CHECKER, truth=CHECKER // 255, predicted=noise, step=1)
    assert lines(folder, run) == []
    assert [text.rpartition(": ")[0] for text in warnings(folder, run)] == [
        "overlay 'walls' was not logged, as it cannot be written"
    ]
    assert [*folder.media.iterdir()] == []


def test_the_newest_step_is_meant_if_none_is_given(folder: RunDir, run: Run) -> None:
    run.log_text("a", "before")
    run.log({"train/loss": 0.5}, step=7)
    run.log_text("a", ["x", "y"])
    run.progress(step=9)
    run.log_text("a", "z")
    assert [(line.step, line.number) for line in lines(folder, run)] == [(0, 0), (7, 0), (7, 1), (9, 0)]


def test_other_ranks_and_programs_outside_the_service_write_nothing(folder: RunDir) -> None:
    for environ in ({Env.RUN_DIR: str(folder.job), "RANK": "1", "WORLD_SIZE": "2"}, {}):
        run = Run(environ)
        run.log_image("a", object())
        run.log_histogram("a", object())
        run.log_table("a", [], [])
        run.log_text("a", "t")
        run.log_confusion("a", object())
        run.close()
    assert not folder.media.exists()
    assert not folder.events.exists()


def shown(folder: RunDir, run: Run) -> dict[str, Any]:
    """Returns the data of the newest item, which the worker accepts."""
    line = lines(folder, run)[-1]
    assert line.data is not None
    optional = {"note": None} | ({"expected": None} if line.kind is MediaKind.TEXT else {})
    assert media_data(line.kind, line.data) == optional | line.data
    return line.data


@pytest.mark.parametrize("made", [list, np.array, torch.tensor])
def test_a_histogram_counts_finite_values(folder: RunDir, run: Run, made: Any, approved: Approved) -> None:
    run.log_histogram("w", made([0.0, 0.1, 1.0, 1.0, math.nan, math.inf]), step=1, bins=2)
    data = shown(folder, run)
    assert (data["edges"], data["counts"]) == ([0.0, 0.5, 1.0], [2, 2])
    assert data["note"] == approved("note")
    for values in ([], [math.nan], [3.0, 3.0], [1e38, -3e38], [-1.5e-45, 1.5e-45]):
        run.log_histogram("w", made(values), step=2, bins=4)
        data = shown(folder, run)
        assert sum(data["counts"]) == len([value for value in values if math.isfinite(value)])
        assert data["edges"][0] < data["edges"][-1]


def test_a_histogram_may_be_counted_already(folder: RunDir, run: Run) -> None:
    run.log_histogram("w", (np.array([0, 1, 3]), torch.tensor([5, 6])), step=1)
    assert shown(folder, run)["counts"] == [5, 6]
    run.log_histogram("w", [1e308, -1e308], step=2)
    assert sum(shown(folder, run)["counts"]) == 2
    with pytest.raises(ValueError, match="finite"):
        run.log_histogram("w", ([0, math.nan], [1]), step=1)
    with pytest.raises(ValueError, match="1 to 1000 bins"):
        run.log_histogram("w", [1.0], bins=0)


def test_a_table_has_plain_values_and_its_first_rows(folder: RunDir, run: Run, approved: Approved) -> None:
    row = ["ä", 1, 2.5, True, None, np.float32(0.5), torch.tensor(3), math.nan, 2**70, Path("p")]
    run.log_table("t", [*"abcdefghij"], [row], step=1)
    assert shown(folder, run)["rows"] == [["ä", 1, 2.5, True, None, 0.5, 3, "NaN", str(2**70), "p"]]
    run.log_table("t", ["text"], (["x" * 2000] for _ in range(1000)), step=2)
    data = shown(folder, run)
    assert data["note"] == approved("note", count=len(data["rows"]))
    assert 50 < len(data["rows"]) < 100
    with pytest.raises(ValueError) as raised:
        run.log_table("t", ["a"], [[1, 2]], step=1)
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize("character", ["x", "ä", "\n", "\x00", "😀"])
def test_of_a_long_text_the_beginning_is_kept(folder: RunDir, run: Run, character: str, approved: Approved) -> None:
    run.log_text("t", character * 1_000_000, step=1)
    data = shown(folder, run)
    assert data["note"] == approved("note", count=len(data["text"]))
    assert DATA_BYTES - 3000 < size_of(data) <= DATA_BYTES


def test_a_text_has_what_is_expected_of_it(folder: RunDir, run: Run, approved: Approved) -> None:
    run.log_text("t", ["a cat", "a cow"], expected=["a dog", None], step=1)
    assert [(line.data or {}).get("expected") for line in lines(folder, run)] == ["a dog", None]
    with pytest.raises(ValueError) as raised:
        run.log_text("t", ["a cat", "a cow"], expected=["a dog"], step=1)
    assert str(raised.value) == approved("message")
    run.log_text("t", "ä" * 40_000, expected="\n" * 50_000, step=2)
    data = shown(folder, run)
    text, expected = len(data["text"]), len(data["expected"])
    assert data["note"] == approved("note", text=text, expected=expected)
    assert min(text, expected) > 15_000
    assert size_of(data) <= DATA_BYTES


def test_of_many_classes_the_most_mistaken_are_kept(folder: RunDir, run: Run, approved: Approved) -> None:
    run.log_confusion("c", torch.tensor([[5, 1], [0, 7]]), classes=["a", "b"], step=1)
    assert shown(folder, run) == {"classes": ["a", "b"], "matrix": [[5, 1], [0, 7]], "note": None}
    matrix = np.eye(1000, dtype="int64") * 100
    matrix[990, 3] = 50
    run.log_confusion("c", matrix, step=2)
    data = shown(folder, run)
    assert {"3", "990"} <= {*data["classes"]}
    assert data["note"] == approved("note", count=len(data["classes"]))
    for wrong in ([[1, 2]], [[-1]], [[math.nan]]):
        with pytest.raises(ValueError, match="confusion matrix"):
            run.log_confusion("c", wrong)
