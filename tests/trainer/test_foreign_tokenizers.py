"""Outside of a job, a tokenizer that a checkpoint or a base brings takes a bounded amount of memory and time."""

from collections.abc import Callable
import json
from pathlib import Path
import resource
from typing import Any

import pytest
import torch

from tests.torchyard.models import languages
from tests.torchyard.models.test_confined import doubling, lowercase
from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.test_evaluate import CPU, checkpoint, texts
import torchyard
from torchyard.contract.errors import DataError
from torchyard.models import confined
from trainer.data.scanning import ALONE, Scan
from trainer.evaluate import evaluate
from trainer.recipes.causal import LanguageTask, make_task

TIMES = 22
"""Doublings of a letter, of which a text with one takes 0.6 GiB."""
MOST_MIB = 200


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a text take a second of a processor at most."""
    monkeypatch.setattr(confined, "TEXT_CPU_S", 0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("bases") / "tiny")


def with_tokenizer(path: Path, change: Callable[[str], str]) -> None:
    state = torch.load(path, weights_only=True)
    changed = change(state["tokenizer"]["content"])
    torch.save({**state, "tokenizer": {**state["tokenizer"], "content": changed}}, path)


def refused(act: Callable[[], object]) -> str:
    """Returns why an act is refused. It takes little memory of this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError) as error:
        act()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MIB << 10
    return error.value.message


@pytest.mark.usefixtures("short")
def test_an_evaluation_of_texts_has_a_limit_and_else_the_same_metrics(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path, _ = checkpoint(tmp_path, "text-classification", texts(tmp_path / "data"))
    expected = evaluate(path, device="cpu")
    with_tokenizer(path, lowercase)
    assert evaluate(path, device="cpu") == expected
    with_tokenizer(path, lambda content: doubling(content, TIMES))
    assert "the tokenizer takes" in refused(lambda: evaluate(path, device="cpu"))


@pytest.mark.thorough
@pytest.mark.usefixtures("short")
def test_an_evaluation_of_a_language_model_has_a_limit(tmp_path: Path, base: Path) -> None:
    file = language.prompts(tmp_path / "data.jsonl", count=10)
    state = languages.whole(base, form="prompt")
    state["config"] |= {"data": {"source": file.as_uri(), "max_length": 48}}
    torch.save(state, tmp_path / "state.pt")
    with_tokenizer(tmp_path / "state.pt", lambda content: doubling(content, TIMES))
    assert "the tokenizer takes" in refused(lambda: evaluate(tmp_path / "state.pt", device="cpu"))


@pytest.mark.parametrize("form", [language.prompts, pytest.param(language.texts, marks=pytest.mark.thorough)])
def test_a_language_model_measures_within_the_limits_what_it_measures_without(
    tmp_path: Path, form: Callable[[Path], Path]
) -> None:
    folder = tiny_base(tmp_path / "base")
    file = folder / "tokenizer.json"
    file.write_text(lowercase(file.read_text()))
    data = form(tmp_path / "data.jsonl")

    def task(scan: Scan) -> LanguageTask:
        torch.manual_seed(0)
        return make_task(language.recipe(folder, data), source=str(data), device=CPU, scan=scan)

    plain, limited = task(ALONE), task(Scan(confined=True))
    assert limited.origin.confined is not None
    assert limited.data.val.lengths.tolist() == plain.data.val.lengths.tolist()
    assert limited.data.train.counted.tolist() == plain.data.train.counted.tolist()
    found, expected = limited.evaluate(None), plain.evaluate(None)
    assert (found.metrics, found.files) == (expected.metrics, expected.files)


@pytest.mark.parametrize("place", ["tokenizer.json", pytest.param("tokenizer_config.json", marks=pytest.mark.thorough)])
@pytest.mark.usefixtures("short")
def test_a_base_whose_added_token_is_doubled_is_refused_before_it_is_read(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined, "LOAD_CPU_S", 0)
    folder = tiny_base(tmp_path / "base")
    state = languages.adapter(folder, form="prompt")
    state["config"] |= {"data": {"source": language.prompts(tmp_path / "data.jsonl").as_uri(), "max_length": 48}}
    torch.save(state, tmp_path / "best.pt")
    add_token(folder, place)
    for act in (
        lambda: torchyard.load(tmp_path / "best.pt", base=folder, device="cpu"),
        lambda: evaluate(tmp_path / "best.pt", base=str(folder), device="cpu"),
    ):
        assert "no tokenizer: the tokenizer takes" in refused(act)


def add_token(folder: Path, place: str) -> None:
    """Doubles each letter `a` of a base many times, and adds the token `a`."""
    token: dict[str, Any] = {"content": "a", "single_word": False, "lstrip": False, "rstrip": False}
    token |= {"normalized": True, "special": False}
    file = folder / "tokenizer.json"
    content = json.loads(doubling(file.read_text(), TIMES))
    if place == "tokenizer.json":
        number = content["model"]["vocab"]["a"]
        content["added_tokens"].append({"id": number, **token})
    else:
        config = json.loads((folder / place).read_text())
        (folder / place).write_text(json.dumps({**config, "added_tokens_decoder": {"70": token}}))
    file.write_text(json.dumps(content))
