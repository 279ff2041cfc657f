"""Sources of texts: their classes, their splits, their digests."""

from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from tests.leftovers import as_nobody
from tests.trainer.data.test_textfiles import file
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import TextDataConfig
from trainer.data.texts import TextData, Texts, load_texts

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def config(**data: Any) -> TextDataConfig:
    return TextDataConfig.model_validate({"source": "file:///there", **data})


def folder(root: Path, count: int = 10) -> Path:
    for name in ("pos", "neg"):
        file(root / f"{name}.txt", "".join(f"{name} {number}\n" for number in range(count)))
    return root


def labelled(part: Texts, data: TextData) -> list[tuple[str, str]]:
    return [(text, data.classes[label]) for text, label in zip(part.texts, part.labels.tolist(), strict=True)]


def test_a_split_holds_out_the_same_share_of_each_class_and_every_text_once(tmp_path: Path) -> None:
    data = load_texts(folder(tmp_path), config(val_fraction=0.2))
    train, val = labelled(data.train, data), labelled(data.val, data)
    assert data.classes == ["neg", "pos"]
    assert all(text.split()[0] == label for text, label in train + val)
    assert [label for _, label in val] == ["neg", "neg", "pos", "pos"]
    assert len({*train, *val}) == len(train) + len(val) == 20


def test_a_split_depends_on_the_seed_alone(tmp_path: Path) -> None:
    first, again, other = (load_texts(folder(tmp_path), config(split_seed=seed)) for seed in (0, 0, 1))
    assert first.val.texts == again.val.texts != other.val.texts
    assert first.identity.digest == again.identity.digest == other.identity.digest
    assert first.split_hash == again.split_hash != other.split_hash


def test_the_digests_see_a_changed_text_a_changed_label_and_another_share(tmp_path: Path) -> None:
    lines = "".join(f'{{"text": "{number}", "label": {number % 2}}}\n' for number in range(40))
    data = load_texts(file(tmp_path / "a.jsonl", lines), config())
    text = load_texts(file(tmp_path / "b.jsonl", lines.replace('"7"', '"8"')), config())
    label = load_texts(file(tmp_path / "c.jsonl", lines.replace('"7", "label": 1', '"7", "label": 0')), config())
    assert len({item.identity.digest for item in (data, text, label)}) == 3
    assert data.split_hash != load_texts(tmp_path / "a.jsonl", config(val_fraction=0.5)).split_hash
    assert (
        data.identity.digest
        == load_texts(file(tmp_path / "d.jsonl", lines.replace("\n", "\r\n\n")), config()).identity.digest
    )


def test_a_folder_may_have_its_own_split(tmp_path: Path) -> None:
    for split, texts in (("train", ("ab", "cd")), ("val", ("a", "d"))):
        file(tmp_path / split / "rt.neg", "\n".join(texts[0]))
        file(tmp_path / split / "rt.pos", "\n".join(texts[1]))
    data = load_texts(tmp_path, config())
    assert labelled(data.train, data) == [("a", "neg"), ("b", "neg"), ("c", "pos"), ("d", "pos")]
    assert labelled(data.val, data) == [("a", "neg"), ("d", "pos")]
    (tmp_path / "val" / "rt.neg").unlink()
    data = load_texts(tmp_path, config())
    assert labelled(data.val, data) == [("d", "pos")]


def test_a_class_without_training_texts_and_a_missing_split_are_named(tmp_path: Path, approved: Approved) -> None:
    folder(tmp_path / "train")
    with pytest.raises(DataError, match=f"there is no {tmp_path / 'val'}"):
        load_texts(tmp_path, config())
    file(tmp_path / "val" / "fair.txt", "fair")
    with pytest.raises(DataError) as raised:
        load_texts(tmp_path, config())
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_folder_that_may_not_be_read_is_named() -> None:
    with as_nobody() as source:
        source.chmod(0o300)
        with pytest.raises(DataError, match=f"{source} cannot be read: Permission denied"):
            load_texts(source, config())
        source.chmod(0o700)


def test_classes_that_are_numbers_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    lines = [f'{{"text": "a", "label": {label}}}' for label in (10, 9, 2, 10, 9, 2)]
    assert load_texts(file(tmp_path / "a.jsonl", "\n".join(lines)), config()).classes == ["2", "9", "10"]
    lines.append('{"text": "a", "label": "x"}')
    assert load_texts(file(tmp_path / "a.jsonl", "\n".join(lines)), config()).classes == ["10", "2", "9", "x"]


def test_a_single_class_and_an_empty_validation_split_are_errors(tmp_path: Path, approved: Approved) -> None:
    file(tmp_path / "pos.txt", "good\nfine\n")
    with pytest.raises(DataError) as raised:
        load_texts(tmp_path, config())
    assert str(raised.value) == approved("there only class", tmp_path=tmp_path)
    path = file(tmp_path / "a.csv", "text,label\ngood,pos\nbad,neg\n")
    with pytest.raises(DataError) as raised:
        load_texts(path, config())
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_what_the_files_do_not_say_themselves_is_noted(tmp_path: Path, approved: Approved) -> None:
    table = file(tmp_path / "a.csv", b"text,label\n" + b"caf\xe9,pos\nbad,neg\n" * 4 + b" ,neg\n")
    assert "\n".join(load_texts(table, config()).notes) == approved("notes", tmp_path=tmp_path)
    assert load_texts(folder(tmp_path / "plain"), config()).notes == []


def test_repeated_texts_stay(tmp_path: Path) -> None:
    path = file(tmp_path / "a.csv", "text,label\n" + "good,pos\n" * 5 + "bad,neg\n" * 5)
    data = load_texts(path, config(val_fraction=0.2))
    assert sorted(data.train.texts + data.val.texts) == ["bad"] * 5 + ["good"] * 5


def test_real_texts() -> None:
    source = SHARED / "rt-polarity"
    if not source.exists():
        pytest.skip("rt-polarity is not in ../shared/data beside the checkout")
    data = load_texts(source, config())
    assert data.classes == ["neg", "pos"]
    assert (len(data.train.texts), len(data.val.texts)) == (9596, 1066)
    assert data.val.labels.sum() == 533
    assert "simplistic , silly and tedious ." in data.train.texts + data.val.texts
