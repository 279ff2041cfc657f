"""Tokens: the trained tokenizer, and batches that are padded to their longest text."""

from pathlib import Path
import random

import pytest
from tokenizers import Tokenizer
import torch

from tests.trainer.ranks import on_ranks, results
from torchyard.contract.recipes import TextDataConfig
from torchyard.models.tokenizer import TokenizerFiles
from trainer.data.texts import Texts, load_texts
from trainer.data.tokens import SPECIAL, Tokens, tokenize, train_tokenizer
from trainer.sampler import TrainSampler

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
CPU = torch.device("cpu")
WORDS = ["low lower lowest", "new newer newest", "wide wider widest", "low new wide"] * 3


def tokens(texts: list[str], *, max_length: int = 16, labels: list[int] | None = None) -> tuple[Tokens, Tokenizer]:
    tokenizer = train_tokenizer(WORDS, vocabulary=300)
    chosen = Texts(texts, torch.tensor(labels or [0] * len(texts)))
    split = tokenize(chosen, tokenizer=tokenizer, max_length=max_length, padding=1, device=CPU)
    return split, Tokenizer.from_str(tokenizer.content)


def test_a_tokenizer_has_robertas_special_token_ids_and_loses_no_text() -> None:
    files = train_tokenizer(WORDS, vocabulary=300)
    tokenizer = Tokenizer.from_str(files.content)
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == [0, 1, 2, 3, 4]
    assert files.vocabulary == tokenizer.get_vocab_size() <= 300
    encoding = tokenizer.encode("lower")
    assert (encoding.ids[0], encoding.ids[-1]) == (0, 2)
    assert len(encoding.ids) < 2 + len("lower")
    assert tokenizer.decode(tokenizer.encode("Ünseen ☃ bytes\t日本").ids).strip() == "Ünseen ☃ bytes\t日本"


def _trained() -> str:
    draw = random.Random(0)
    texts = [" ".join("".join(draw.choices("abcd", k=4)) for _ in range(20)) for _ in range(300)]
    return train_tokenizer(texts, vocabulary=1000).content


def test_the_same_texts_give_the_same_tokenizer_in_any_process_on_any_number_of_threads() -> None:
    one, three = (results(on_ranks(1, _trained, env={"RAYON_NUM_THREADS": count})) for count in ("1", "3"))
    assert one == three == [_trained()]


def test_a_batch_is_as_wide_as_its_longest_text_and_padded() -> None:
    split, tokenizer = tokens(["low", "low new wide new", "new wide", ""], labels=[0, 1, 1, 0])
    expected = [tokenizer.encode(text).ids for text in ("low", "low new wide new", "new wide", "")]
    first, second = split.batches([torch.tensor([2, 0, 3]), torch.tensor([1])], device=CPU)
    width = len(expected[2])
    assert first.inputs["input_ids"].tolist() == [
        expected[index] + [1] * (width - len(expected[index])) for index in (2, 0, 3)
    ]
    assert first.inputs["attention_mask"].sum(1).tolist() == [len(expected[index]) for index in (2, 0, 3)]
    assert first.targets.tolist() == [1, 0, 0]
    assert second.inputs["input_ids"].tolist() == [expected[1]]
    assert second.inputs["attention_mask"].all()
    assert (first.inputs["input_ids"].dtype, first.inputs["attention_mask"].dtype) == (torch.int64, torch.bool)


def test_a_long_text_is_cut_and_keeps_its_end_token() -> None:
    split, tokenizer = tokens(["low new wide " * 20], max_length=8)
    ids = next(split.batches([torch.tensor([0])], device=CPU)).inputs["input_ids"][0].tolist()
    whole = tokenizer.encode("low new wide " * 20).ids
    assert ids == [*whole[:7], 2]


def test_a_special_token_in_a_text_is_plain_text() -> None:
    split, _ = tokens(["<pad> a </s>"], max_length=64)
    ids = split.ids.tolist()
    assert [index for index, token in enumerate(ids) if token in range(5)] == [0, len(ids) - 1]


def test_the_longest_texts_are_found() -> None:
    split, _ = tokens(["low", "low new wide new", "new wide", ""])
    assert split.longest(2).tolist() == [1, 2]
    assert sorted(split.longest(9).tolist()) == [0, 1, 2, 3]


def test_saved_padding_and_truncation_of_a_tokenizer_are_ignored() -> None:
    files = train_tokenizer(WORDS, vocabulary=300)
    tokenizer = Tokenizer.from_str(files.content)
    tokenizer.enable_padding(length=32)
    tokenizer.enable_truncation(4)
    saved = TokenizerFiles(tokenizer.to_str(), files.roles)
    texts = Texts(["low new wide new low", "low"], torch.tensor([0, 0]))
    split = tokenize(texts, tokenizer=saved, max_length=16, padding=1, device=CPU)
    assert split.lengths.tolist() == [7, 3]


def test_little_of_a_batch_of_film_reviews_is_padding() -> None:
    source = SHARED / "rt-polarity"
    if not source.exists():
        pytest.skip("rt-polarity is not in ../shared/data beside the checkout")
    reviews = load_texts(source, TextDataConfig(source=f"file://{source}")).train
    tokenizer = train_tokenizer(reviews.texts, vocabulary=8000)
    split = tokenize(reviews, tokenizer=tokenizer, max_length=128, padding=1, device=CPU)
    assert padded_share(split, lengths=None) > 1.9
    assert padded_share(split, lengths=split.lengths) <= 1.10


def padded_share(split: Tokens, *, lengths: torch.Tensor | None) -> float:
    """Returns the tokens of an epoch's batches of 32 with their padding, as a multiple of those without."""
    sampler = TrainSampler(len(split), global_batch=32, batch_size=32, seed=42, lengths=lengths)
    plan = [batch.indices for step in sampler.steps(1) for batch in step.micro_batches]
    masks = [batch.inputs["attention_mask"] for batch in split.batches(plan, device=CPU)]
    return sum(mask.numel() for mask in masks) / sum(int(mask.sum()) for mask in masks)
