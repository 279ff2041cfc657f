"""What docs/models.md shows does what it says, in a folder with the files that it names."""

import contextlib
import io
from pathlib import Path

import numpy as np
from PIL import Image
import pytest
import torch

from tests.e2e.documented import blocks, commands_in
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.models.languages import adapter
from tests.trainer.bases import tiny_base
from tests.trainer.test_evaluate import RECIPES, checkpoint

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
CHECKPOINTS = {"best.pt": "image-classification", "cracks.pt": "segmentation", "reviews.pt": "text-classification"}
OF_TEXTS = ("reviews", "chat")
"""What the names of models of texts begin with."""
NOT_RUN = ("make build", "torchyard download", "torchyard models add", "torchyard run")
"""The beginnings of blocks that need an installation or a service.

tests/deploy/test_distributions.py and tests/e2e run such.
"""


@pytest.fixture
def folder(tmp_path: Path, texts: bool) -> Path:
    """Checkpoints without their data, and pictures."""
    for name, trainer in CHECKPOINTS.items():
        if name == "reviews.pt" and not texts:
            continue
        data = tmp_path / trainer
        data.mkdir()
        path, _ = checkpoint(data, trainer, RECIPES[trainer](data))
        (tmp_path / "user" / "photos").mkdir(parents=True, exist_ok=True)
        path.rename(tmp_path / "user" / name)
    for name in ("photo.jpg", "photos/a.jpg", "photos/b.png"):
        values = np.random.default_rng(len(name)).integers(256, size=(32, 48, 3))
        Image.fromarray(values.astype(np.uint8)).save(tmp_path / "user" / name)
    if texts:
        torch.save(adapter(tiny_base(tmp_path / "user" / "base"), form="messages"), tmp_path / "user" / "chat.pt")
        (tmp_path / "user" / "questions.txt").write_text("Who asks a question?\nA short film\n")
    return tmp_path / "user"


@pytest.mark.thorough
@pytest.mark.parametrize("texts", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_what_the_page_shows_runs(folder: Path, texts: bool) -> None:
    """Its models of texts, for which transformers is loaded, are left out where time counts."""
    names: dict[str, object] = {}
    said = [
        _shell(block, folder, texts=texts) if language == "sh" else _python(block, folder, names)
        for language, block in _in_order()
        if texts or language == "sh" or not _is_of_texts(block)
    ]
    assert len(said) == len(blocks(PAGE, "(?:sh|python)")) - len(NOT_RUN) - (0 if texts else 2)
    assert {path.name for path in folder.iterdir()} > {"best.onnx", "best.pt2", "best.safetensors"}
    first, several, predicted, _, onnx, _, *of_texts = said
    assert first.strip() == onnx.strip() and first.strip() in map(str, range(10))
    assert several.count("photos/") == 2
    assert predicted.count("photos/a.jpg") == 2 and predicted.count("a fine film") == texts
    assert {path.name for path in (folder / "out").iterdir()} == {
        f"{name}.{kind}.png" for name in "ab" for kind in ("mask", "overlay")
    }
    if texts:
        classified, written, generated = of_texts
        assert classified.count("'label'") == 2
        assert written.count('"finish"') == 2 and written.endswith("chat-hf\nchat-adapter\n")
        assert generated.count("A short film") == 1


def _in_order() -> list[tuple[str, str]]:
    found = {(PAGE.index(block), kind, block) for kind in ("sh", "python") for block in blocks(PAGE, kind)}
    return [(kind, block) for _, kind, block in sorted(found) if not block.startswith(NOT_RUN)]


def _shell(block: str, folder: Path, *, texts: bool) -> str:
    """Calls the commands in this process, which has torch."""
    said = ""
    for arguments in commands_in(block, "torchyard"):
        if not texts and any(map(_is_of_texts, arguments)):
            continue
        done = run_in_process(arguments, environment(None, ""), cwd=folder)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    return said


def _is_of_texts(word: str) -> bool:
    return any(name in word for name in OF_TEXTS)


def _python(block: str, folder: Path, names: dict[str, object]) -> str:
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(block, "docs/models.md", "exec"), names)
    return said.getvalue()
