"""A stranger's tokenizer takes a bounded amount of memory and time, and else does what it would do in this process."""

from collections.abc import Iterator
import gc
import json
from pathlib import Path
import resource

import psutil
import pytest
from tokenizers import Tokenizer
import torch

from tests.torchyard.models.test_loading import CLASSES, State, films
from tests.trainer.bases import tiny_base
import torchyard
from torchyard.contract.errors import DataError
from torchyard.models import confined
from torchyard.models.confined import Confined, is_plain
from torchyard.models.language import tokenizer_from
from torchyard.models.prompts import Prompts
from torchyard.models.texts import TextClassifier
from trainer.data.tokens import train_tokenizer

TEXTS = ["a fine film", "a dull film", "ÄÖ ß 日本", "x" * 3000, "a" * 300]


@pytest.fixture(scope="module")
def content() -> str:
    return train_tokenizer(["a fine film", "a dull film"], vocabulary=300).content


def with_normalizers(content: str, *normalizers: dict[str, object]) -> str:
    return json.dumps({**json.loads(content), "normalizer": {"type": "Sequence", "normalizers": normalizers}})


def doubling(content: str, times: int) -> str:
    """Returns a tokenizer that makes 2 ** times letters of an `a`."""
    rule: dict[str, object] = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return with_normalizers(content, *[rule] * times)


def lowercase(content: str) -> str:
    return with_normalizers(content, {"type": "Lowercase"})


def saved(folder: Path, content: str) -> Path:
    state: State = films()
    torch.save({**state, "tokenizer": {**state["tokenizer"], "content": content}}, folder / "best.pt")
    return folder / "best.pt"


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = children()
    yield
    gc.collect()
    assert children() <= before


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a text take a second of a processor at most."""
    monkeypatch.setattr(confined, "TEXT_CPU_S", 0)


@pytest.mark.thorough
@pytest.mark.usefixtures("nothing_left")
def test_a_tokenizer_takes_no_more_than_its_limits(content: str) -> None:
    tokenizer = Confined(doubling(content, 40))
    with pytest.raises(DataError):
        tokenizer.encode("a")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_maxrss <= confined.MEMORY_BYTES >> 10
    del tokenizer


@pytest.mark.usefixtures("nothing_left", "short")
def test_a_text_that_takes_too_long_is_ended_and_takes_no_memory_here(tmp_path: Path, content: str) -> None:
    path = saved(tmp_path, doubling(content, 40))
    model = torchyard.load(path, device="cpu")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        DataError, match="the tokenizer cannot read a text: the tokenizer takes too much processor time"
    ):
        model.predict("a")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    assert model.predict("fine film").label in CLASSES
    del model


@pytest.mark.usefixtures("nothing_left")
def test_a_text_that_becomes_too_many_tokens_is_refused(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setattr(confined, "LEAST_NUMBERS", 100)
    tokenizer = Confined(doubling(content, 12))
    with pytest.raises(DataError, match="the tokenizer makes too much of a text"):
        tokenizer.encode("a")
    del tokenizer


@pytest.mark.usefixtures("nothing_left")
def test_a_process_of_its_own_gives_the_same_tokens(content: str) -> None:
    other = lowercase(content)
    here, there = Tokenizer.from_str(other), Confined(other)
    assert [there.encode(text) for text in TEXTS] == [here.encode(text).ids for text in TEXTS]
    assert there.encode("film", special=False) == here.encode("film", add_special_tokens=False).ids
    tokens = here.encode("a fine film").ids
    assert there.decode(tokens) == here.decode(tokens)
    assert (there.size, there.highest) == (here.get_vocab_size(), max(here.get_vocab().values()))
    cut = Confined(other, max_length=5)
    assert len(cut.encode("a fine film" * 20)) == 5
    del there, cut


@pytest.mark.usefixtures("nothing_left")
def test_a_model_with_such_a_tokenizer_predicts_what_one_without_does(tmp_path: Path, content: str) -> None:
    (tmp_path / "plain").mkdir()
    state = films()
    torch.save(state, tmp_path / "plain" / "best.pt")
    other = lowercase(state["tokenizer"]["content"])
    torch.save({**state, "tokenizer": {**state["tokenizer"], "content": other}}, tmp_path / "best.pt")
    paths = (tmp_path / "plain" / "best.pt", tmp_path / "best.pt")
    plain, confined_one = (torchyard.load(path, device="cpu") for path in paths)
    texts = ["a fine film", "a dull film"] * 20
    assert [each.label for each in confined_one.predict(texts)] == [each.label for each in plain.predict(texts)]
    assert isinstance(confined_one, TextClassifier)
    assert isinstance(plain, TextClassifier)
    assert confined_one.preprocessing == plain.preprocessing
    del plain, confined_one


@pytest.mark.usefixtures("nothing_left")
def test_prompts_are_read_and_answers_written_within_the_limits(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setattr(confined, "LEAST_NUMBERS", 100)
    roles = {"eos_token": "</s>"}

    def prompts_of(changed: str) -> Prompts:
        found = tokenizer_from({"content": changed, "roles": roles, "chat_template": None})
        return Prompts(found, form="text", ends=[])

    hostile, harmless, plain = (prompts_of(each) for each in (doubling(content, 12), lowercase(content), content))
    with pytest.raises(DataError, match="the tokenizer cannot read a prompt: the tokenizer makes too much"):
        hostile.read(["a"])
    assert harmless.read(["a fine film"]) == plain.read(["a fine film"])
    (tokens,) = plain.read(["a fine film"])
    assert harmless.decode(tokens) == plain.decode(tokens)
    del hostile, harmless


def test_what_a_training_makes_is_plain_and_no_other_is(content: str) -> None:
    assert is_plain(content)
    assert not is_plain(lowercase(content))
    whole = json.loads(content)
    for part, value in {
        "padding": {"strategy": {"Fixed": 10**9}},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},
        "model": {"type": "Unigram"},
        "post_processor": {"type": "TemplateProcessing"},
    }.items():
        assert not is_plain(json.dumps({**whole, part: value})), part
    for text in ("", "[]", "{}", "[" * 100_000):
        assert not is_plain(text)


def test_a_template_is_plain_that_adds_nothing(tmp_path: Path, content: str) -> None:
    base = json.loads((tiny_base(tmp_path) / "tokenizer.json").read_text())
    assert base["post_processor"]["type"] == "TemplateProcessing"
    assert is_plain(json.dumps(base))
    template = {**base["post_processor"], "single": base["post_processor"]["single"] * 2}
    assert not is_plain(json.dumps({**json.loads(content), "post_processor": template}))


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(DataError):
        Confined("{}")
