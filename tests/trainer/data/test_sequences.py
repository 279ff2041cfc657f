"""Sequences: which tokens are counted, and what the batches hold."""

from collections.abc import Iterator
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.approved import Approved
from tests.trainer.bases import END, TEMPLATE, tiny_base
from tests.trainer.rendering import rendered_here
from torchyard.contract.errors import DataError
from torchyard.contract.recipes.causal import CausalDataConfig
from trainer.data import documents
from trainer.data.batch import Batch
from trainer.data.loading import TOKENS
from trainer.data.sequences import SequenceData, Sequences, load_sequences

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def rendered() -> Iterator[None]:
    """Templates are rendered in this process."""
    with rendered_here():
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def tokenizer(base: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base)


def source(file: Path, records: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def load(path: Path, tokenizer: Any, **data: Any) -> SequenceData:
    options = {"val_fraction": 0.5, "max_length": 64, "packing": False, **data}
    config = CausalDataConfig.model_validate({"source": "file:///there", **options})
    return load_sequences(
        path, config, tokenizer=tokenizer, chat_template=TEMPLATE, vocabulary=len(tokenizer), base="the base"
    )


def twice(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [record, record]


def batch(sequences: Sequences, rows: list[int] | None = None) -> Batch:
    plan = torch.tensor(rows if rows is not None else range(len(sequences)))
    return next(sequences.batches([plan], device=CPU))


def learned(found: Batch, tokenizer: Any) -> str:
    return tokenizer.decode(found.targets)


def test_a_text_counts_all_but_its_first_token_and_ends_with_eos(tmp_path: Path, tokenizer: Any) -> None:
    data = load(source(tmp_path / "a.jsonl", twice({"text": "The yard is open at noon."})), tokenizer)
    ids = tokenizer("The yard is open at noon.").input_ids
    found = batch(data.train)
    assert found.inputs["input_ids"].tolist() == [[*ids, tokenizer.eos_token_id]]
    assert found.inputs["position_ids"].tolist() == [list(range(len(ids) + 1))]
    assert found.inputs["places"].tolist() == list(range(len(ids)))
    assert found.inputs["labels"].tolist() == found.targets.tolist() == [*ids[1:], tokenizer.eos_token_id]
    assert (data.train.counted.tolist(), data.train.lengths.tolist()) == ([len(ids)], [len(ids) + 1])
    assert data.form == "text"


def test_a_text_that_ends_with_eos_gets_no_second_one(tmp_path: Path, tokenizer: Any) -> None:
    data = load(source(tmp_path / "a.jsonl", twice({"text": f"The yard{END}"})), tokenizer)
    assert batch(data.train).inputs["input_ids"].tolist() == [tokenizer(f"The yard{END}").input_ids]


def test_only_the_completion_of_a_prompt_is_counted(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    record = {"prompt": "Who asks a question?", "completion": " A fine one."}
    data = load(source(tmp_path / "a.jsonl", twice(record)), tokenizer)
    assert learned(batch(data.train), tokenizer) == f" A fine one.{END}"
    assert tokenizer.decode(batch(data.train).inputs["input_ids"][0]) == approved("tokenizer", end=END)
    prompt = data.val.prompts(9)[0]
    assert (tokenizer.decode(prompt.tokens), tokenizer.decode(prompt.rest)) == (
        "Who asks a question?",
        f" A fine one.{END}",
    )


def test_of_a_conversation_what_the_assistant_says_is_counted_with_the_end_of_its_turns(
    tmp_path: Path, tokenizer: Any
) -> None:
    said = [("system", "Be fine."), ("user", "Who asks?"), ("assistant", "A film."), ("user", "Noon?")]
    messages = [{"role": role, "content": content} for role, content in [*said, ("assistant", "At noon.")]]
    data = load(source(tmp_path / "a.jsonl", twice({"messages": messages})), tokenizer)
    assert learned(batch(data.train), tokenizer) == f"A film.{END}At noon.{END}"
    ids = batch(data.train).inputs["input_ids"]
    assert tokenizer.decode(ids[0]) == tokenizer.apply_chat_template(messages, tokenize=False)


def rows_of(found: Batch) -> list[tuple[list[int], list[int]]]:
    return list(zip(found.inputs["input_ids"].tolist(), found.inputs["position_ids"].tolist(), strict=True))


def test_rows_are_packed_whole_and_positions_restart_with_each_document_and_the_padding(
    tmp_path: Path, tokenizer: Any
) -> None:
    records = [{"prompt": "a" * length, "completion": "b"} for length in (5, 3, 9, 2, 4, 7)]
    folder = tmp_path / "data"
    folder.mkdir()
    source(folder / "train.jsonl", records)
    source(folder / "val.jsonl", records[:1])
    apart = load(folder, tokenizer)
    data = load(folder, tokenizer, packing=True, max_length=16)
    found = batch(data.train)
    assert len(data.train) < len(records)
    assert data.train.lengths.max() <= 16
    assert data.train.lengths.sum() == apart.train.lengths.sum()
    packed: list[list[int]] = []
    for ids, positions in rows_of(found):
        starts = [place for place, position in enumerate(positions) if position == 0]
        packed += [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]
    whole = [
        ids[:length]
        for ids, length in zip(
            batch(apart.train).inputs["input_ids"].tolist(), apart.train.lengths.tolist(), strict=True
        )
    ]
    assert sorted(document for document in packed if any(document)) == sorted(whole)
    flat: Tensor = found.inputs["input_ids"].flatten()
    assert torch.equal(flat[found.inputs["places"] + 1], found.targets)
    assert found.targets.numel() == data.train.counted.sum() == apart.train.counted.sum()


def test_the_tokens_are_counted_without_padding(tmp_path: Path, tokenizer: Any) -> None:
    data = load(source(tmp_path / "a.jsonl", [{"text": "a b c d"}, {"text": "a"}, {"text": "b"}]), tokenizer)
    before = TOKENS.count
    batch(data.train)
    assert TOKENS.count - before == data.train.lengths.sum()


def test_what_is_too_long_is_cut_or_left_out_and_said(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    path = source(tmp_path / "a.jsonl", [*[{"text": "a b"}] * 4, *[{"text": "a " * 40}] * 2])
    data = load(path, tokenizer, max_length=8)
    assert data.notes == [approved("notes")]
    assert max(data.train.lengths.max(), data.val.lengths.max()) == 8
    data = load(path, tokenizer, max_length=8, too_long="leave_out")
    assert data.notes == [approved("examples longer than")]
    assert len(data.train) + len(data.val) == 4


def test_an_example_without_a_counted_token_is_left_out_and_said(
    tmp_path: Path, tokenizer: Any, approved: Approved
) -> None:
    long = {"prompt": "ab" * 90, "completion": "b"}
    path = source(tmp_path / "a.jsonl", [*[{"prompt": "a", "completion": "b"}] * 4, long])
    data = load(path, tokenizer, max_length=8)
    assert "\n".join(data.notes) == approved("notes")
    assert len(data.train) + len(data.val) == 4
    with pytest.raises(DataError) as raised:
        load(source(tmp_path / "b.jsonl", twice(long)), tokenizer, max_length=8)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_blank_texts_are_left_out_and_said(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    data = load(source(tmp_path / "a.jsonl", [*[{"text": "a b"}] * 4, {"text": ""}, {"text": " \n"}]), tokenizer)
    assert data.notes == [approved("notes")]


def test_the_reader_is_called_while_a_large_source_is_tokenized(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CHUNK", 4)
    calls: list[None] = []
    config = CausalDataConfig.model_validate({"source": "file:///there"})
    load_sequences(
        source(tmp_path / "a.jsonl", [{"text": "a b"}] * 10),
        config,
        tokenizer=tokenizer,
        chat_template=None,
        vocabulary=len(tokenizer),
        base="the base",
        on_chunk=lambda: calls.append(None),
    )
    assert len(calls) == 3


def test_a_token_that_begins_in_the_prompt_is_counted_if_the_completion_has_a_part_of_it(
    tmp_path: Path, tokenizer: Any
) -> None:
    data = load(source(tmp_path / "a.jsonl", twice({"prompt": "The yard is ", "completion": "open"})), tokenizer)
    assert learned(batch(data.train), tokenizer) == f" open{END}"


def test_an_end_token_that_the_tokenizer_adds_is_counted_and_not_repeated(tmp_path: Path, base: Path) -> None:
    from tokenizers import processors
    from transformers import AutoTokenizer

    adding = AutoTokenizer.from_pretrained(base)
    special = [("<pad>", 0), (END, 1)]
    adding.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"<pad> $A {END}", special_tokens=special
    )
    data = load(source(tmp_path / "a.jsonl", twice({"prompt": "The", "completion": " yard"})), adding)
    assert batch(data.train).inputs["input_ids"][0].tolist() == adding("The yard").input_ids
    assert adding.decode(batch(data.train).targets) == f" yard{END}"


def test_a_folder_has_its_own_split_and_each_example_a_place_in_the_digests(
    tmp_path: Path, tokenizer: Any, approved: Approved
) -> None:
    source(tmp_path / "train.jsonl", [{"text": "a b"}, {"text": "c d"}])
    source(tmp_path / "val.jsonl", [{"text": "e f"}])
    data = load(tmp_path, tokenizer)
    assert tokenizer.decode(batch(data.val).inputs["input_ids"][0]) == f"e f{END}"
    assert sorted(data.identity.digests) == ["train.jsonl", "val.jsonl"]
    source(tmp_path / "val.jsonl", [{"text": "e g"}])
    other = load(tmp_path, tokenizer)
    assert other.identity.digests["train.jsonl"] == data.identity.digests["train.jsonl"]
    assert other.identity.digests["val.jsonl"] != data.identity.digests["val.jsonl"]
    assert (other.identity.digest, other.split_hash) != (data.identity.digest, data.split_hash)
    source(tmp_path / "val.jsonl", [{"prompt": "a", "completion": "b"}])
    with pytest.raises(DataError) as raised:
        load(tmp_path, tokenizer)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_split_depends_on_the_seed_alone(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    path = source(tmp_path / "a.jsonl", [{"text": f"a {number}"} for number in range(20)])
    first, again, other = (load(path, tokenizer, val_fraction=0.2, split_seed=seed) for seed in (0, 0, 1))
    assert len(first.val) == 4
    assert first.split_hash == again.split_hash != other.split_hash
    assert first.identity.digest == other.identity.digest
    assert torch.equal(batch(first.val).inputs["input_ids"], batch(again.val).inputs["input_ids"])
    with pytest.raises(DataError) as raised:
        load(source(path, [{"text": "a b"}]), tokenizer)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_conversation_that_the_template_refuses_is_named(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% endfor %}"
    )
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = source(tmp_path / "a.jsonl", [{"messages": said}, {"messages": [{"role": "system", "content": ""}, *said]}])
    config = CausalDataConfig.model_validate({"source": "file:///there"})
    with pytest.raises(DataError) as raised:
        load_sequences(path, config, tokenizer=tokenizer, chat_template=template, vocabulary=400, base="the base")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_bad_line_among_conversations_is_named_once(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = source(tmp_path / "a.jsonl", [*twice({"messages": said}), {"messages": said[:1]}])
    with pytest.raises(DataError) as raised:
        load(path, tokenizer)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_what_the_model_continues(tmp_path: Path, tokenizer: Any) -> None:
    data = load(source(tmp_path / "a.jsonl", twice({"text": "The yard is open at noon."})), tokenizer)
    (prompt,) = data.val.prompts(4)
    whole = batch(data.val).inputs["input_ids"][0].tolist()
    assert prompt.tokens + prompt.rest == whole
    assert len(prompt.tokens) == len(whole) // 2
    data = load(source(tmp_path / "b.jsonl", twice({"text": "a " * 400})), tokenizer, max_length=512)
    assert len(data.val.prompts(1)[0].tokens) == 64


def test_of_a_conversation_the_model_continues_the_first_turn(tmp_path: Path, tokenizer: Any) -> None:
    said = [("user", "Who asks?"), ("assistant", "A film."), ("user", "Noon?"), ("assistant", "At noon.")]
    messages = [{"role": role, "content": content} for role, content in said]
    data = load(source(tmp_path / "a.jsonl", twice({"messages": messages})), tokenizer)
    (prompt,) = data.val.prompts(1)
    assert tokenizer.decode(prompt.tokens) == "<|user|>Who asks?<|end|><|assistant|>"
    assert tokenizer.decode(prompt.rest) == f"A film.{END}"
    data = load(source(tmp_path / "b.jsonl", twice({"prompt": "The yard", "completion": " is open"})), tokenizer)
    assert tokenizer.decode(data.val.prompts(1)[0].rest) == f" is open{END}"


@pytest.mark.parametrize("too_long", ["cut", pytest.param("leave_out", marks=pytest.mark.thorough)])
def test_a_line_of_many_thousand_tokens_is_too_long_and_no_more(
    tmp_path: Path, tokenizer: Any, too_long: str, approved: Approved
) -> None:
    path = source(tmp_path / "a.jsonl", [{"text": "a " * 100_000}, *[{"text": "a b"}] * 4])
    data = load(path, tokenizer, max_length=8, too_long=too_long, packing=False)
    assert data.notes == [approved("notes", replace=too_long.replace("leave_out", "left out"))]
    assert len(data.train) + len(data.val) == (5 if too_long == "cut" else 4)
    assert max(data.train.lengths.max(), data.val.lengths.max()) <= 8


def test_ids_above_the_models_vocabulary_are_an_error(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    path = source(tmp_path / "a.jsonl", twice({"text": "The yard"}))
    config = CausalDataConfig.model_validate({"source": "file:///there"})
    with pytest.raises(DataError) as raised:
        load_sequences(path, config, tokenizer=tokenizer, chat_template=None, vocabulary=3, base="tiny")
    assert str(raised.value) == approved("message")


def test_messages_need_a_chat_template(tmp_path: Path, tokenizer: Any, approved: Approved) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = source(tmp_path / "a.jsonl", twice({"messages": messages}))
    config = CausalDataConfig.model_validate({"source": "file:///there"})
    with pytest.raises(DataError) as raised:
        load_sequences(path, config, tokenizer=tokenizer, chat_template=None, vocabulary=400, base="tiny")
    assert str(raised.value) == approved("message")
