"""Text files: the samples in them, and the errors for bad files."""

from pathlib import Path

import pytest

from tests.approved import Approved
from torchyard.contract.errors import DataError
from trainer.data.textfiles import Sample, class_files, read_classes, read_table


def file(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pairs(samples: list[Sample]) -> list[tuple[str, str]]:
    return [(sample.text, sample.label) for sample in samples]


def test_each_nonblank_line_of_a_class_file_is_a_text(tmp_path: Path) -> None:
    file(tmp_path / "pos.txt", "good\n\n  fine \r\ngood\n \t\nwell")
    file(tmp_path / "neg.txt", "bad\n")
    for name in (".hidden", "Thumbs.db", "desktop.ini"):
        file(tmp_path / name, "nothing")
    samples = read_classes(class_files(tmp_path))
    assert pairs(samples) == [("bad", "neg"), ("good", "pos"), ("fine", "pos"), ("good", "pos"), ("well", "pos")]


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["rt.neg", "rt.pos"], ["neg", "pos"]),
        (["rt-polarity.de.neg", "rt-polarity.de.pos"], ["neg", "pos"]),
        (["a.txt", "b.txt", "c.text"], ["a", "b", "c"]),
        (["a", "b"], ["a", "b"]),
        (["only.txt"], ["only"]),
    ],
)
def test_a_class_is_named_by_its_files_stem_or_by_the_suffix_where_all_stems_are_equal(
    tmp_path: Path, names: list[str], classes: list[str]
) -> None:
    for name in names:
        file(tmp_path / name, "text")
    assert list(class_files(tmp_path)) == classes


def test_only_line_breaks_end_a_line(tmp_path: Path) -> None:
    file(tmp_path / "a.txt", "one\u2028still one\x0bone\x1cone\x85one\ntwo")
    assert len(read_classes(class_files(tmp_path))) == 2


def test_a_file_in_which_nothing_is_utf8_is_read_as_cp1252_and_that_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    path = file(tmp_path / "a.txt", b"plain\ncaf\xe9 \x93so\x94\x85 \x81\n")
    assert pairs(read_classes({"a": path}, told.append)) == [("plain", "a"), ("café “so”… �", "a")]
    assert told == [f"{path} is not UTF-8 (line 2) and is read as cp1252: if it is not, save it as UTF-8"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_byte_order_mark_says_the_encoding(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding.endswith("-be") else ""
    rows = f'{mark}text,label\n"a café, größer",pos\n東京,neg\n'
    assert pairs(read_table(file(tmp_path / "a.csv", rows.encode(encoding)))) == [
        ("a café, größer", "pos"),
        ("東京", "neg"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("café\n".encode() * 3 + b"caf\xe9\n", id="one wrong byte"),
        pytest.param("\ufeffplain\n".encode() + b"caf\xe9\n", id="behind a mark"),
        pytest.param("plain\n東京\n".encode()[:-2], id="cut off"),
        pytest.param("plain\n".encode("utf-16") + b"\x00\xd8", id="half a surrogate"),
        pytest.param("plain\ntext\n".encode("utf-16-le"), id="without a mark"),
        pytest.param(b"plain\nte\0xt\n", id="NUL"),
    ],
)
def test_a_wrong_byte_is_named_with_its_line_and_nothing_is_guessed(
    tmp_path: Path, content: bytes, approved: Approved
) -> None:
    path = file(tmp_path / "a.txt", content)
    told: list[str] = []
    with pytest.raises(DataError) as caught:
        read_classes({"a": path}, told.append)
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)
    assert not told


def test_a_csv_file_may_quote_have_more_columns_and_a_byte_order_mark(tmp_path: Path, approved: Approved) -> None:
    content = '\ufefflabel,id,text\r\npos,1,"good, and ""well""\r\nmade"\r\n\r\nneg,2,bad\r\n0,3,  \r\n'
    path = file(tmp_path / "a.CSV", content)
    assert pairs(read_table(path)) == [(approved("pairs"), "pos"), ("bad", "neg")]


def test_a_field_may_be_long(tmp_path: Path) -> None:
    path = file(tmp_path / "a.csv", "text,label\n" + "x" * 3_000_000 + ",neg\n")
    assert pairs(read_table(path)) == [("x" * 3_000_000, "neg")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", 'text\tlabel\n"a ""fine"" film, so"\tpos\nbad\tneg\n'),
        ("a.csv", 'ID, Text ,LABEL\n1,"a ""fine"" film, so",pos\n2,bad,neg\n'),
        ("a.csv", 'Text,text,label\nno,"a ""fine"" film, so",pos\nno,bad,neg\n'),
        ("a.json", '[{"text": "a \\"fine\\" film, so", "label": "pos"},\n {"text": "bad", "label": "neg"}]\n'),
        ("a.jsonl", '{"Text": "a \\"fine\\" film, so", "Label": "pos"}\n{"text": "bad", "label": "neg"}\n'),
    ],
)
def test_tables_as_other_programs_write_them_are_read(tmp_path: Path, name: str, content: str) -> None:
    assert pairs(read_table(file(tmp_path / name, content))) == [('a "fine" film, so', "pos"), ("bad", "neg")]


def test_labels_may_be_true_and_false(tmp_path: Path) -> None:
    path = file(tmp_path / "a.jsonl", '{"text": "a", "label": true}\n{"text": "b", "label": false}\n')
    assert pairs(read_table(path)) == [("a", "true"), ("b", "false")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "text\tlabel\na\tb\tc\n"),
        ("a.tsv", 'text\tlabel\n"fine" he said\tpos\n'),
        ("a.csv", "review,sentiment\na,b\n"),
        ("a.csv", "Text,TEXT,label\na,b,c\n"),
        ("a.json", '[{"text": "a", "label": "b"}, 3]'),
        ("a.json", '[{"text": "a", "label": "b"}, {"label": "b"}]'),
        ("a.json", '[{"text": "a", "label": "b"}'),
    ],
)
def test_a_refusal_of_a_table_says_what_to_change(tmp_path: Path, name: str, content: str, approved: Approved) -> None:
    with pytest.raises(DataError) as caught:
        read_table(file(tmp_path / name, content))
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)


@pytest.mark.parametrize("others", [("test",), ("val", "test"), ("Valid",)])
def test_files_that_are_named_as_a_split_are_no_classes(
    tmp_path: Path, others: tuple[str, ...], approved: Approved
) -> None:
    for name in ("train", *others):
        file(tmp_path / f"{name}.txt", "text")
    with pytest.raises(DataError) as caught:
        class_files(tmp_path)
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)


@pytest.mark.parametrize("suffix", ["json", "jsonl", "ndjson"])
def test_json_lines_have_labels_of_text_or_number(tmp_path: Path, suffix: str) -> None:
    lines = ['{"text": "caf\\u00e9", "label": "pos", "id": null}', "", '{"label": 0, "text": "bad"}', " "]
    lines += ['{"label": 1.5, "text": " fair\\n"}', '{"label": "pos", "text": ""}']
    path = file(tmp_path / f"a.{suffix}", "\n".join(lines))
    assert pairs(read_table(path)) == [("café", "pos"), ("bad", "0"), ("fair", "1.5")]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        "text,class\ngood,pos\n",
        "text,text,label\na,b,c\n",
        "text,label\n",
        "text,label\n  ,pos\n",
        "text,label\nbad,neg\nnice, but dull,neg\n",
        "text,label\nbad\n",
        "text,label\nbad, \n",
        'text,label\n\n"bad,neg\ngood,pos\n',
    ],
)
def test_an_error_in_a_csv_file_names_the_line(tmp_path: Path, content: str, approved: Approved) -> None:
    path = file(tmp_path / "a.csv", content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert caught.value.message.startswith(str(path))
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        pytest.param("[" * 100_000, id="deep"),
        "[1]",
        '{"text": "a"}',
        '{"label": "a"}',
        '{"text": null, "label": "a"}',
        '{"text": 3, "label": "a"}',
        '{"text": "a", "label": null}',
        '{"text": "a", "label": ["pos"]}',
        '{"text": "a", "label": NaN}',
        '{"text": "a", "label": ""}',
        '{"text": "\\ud800", "label": "a"}',
        '{"text": "a", "label": "\\ud800"}',
    ],
)
def test_an_error_in_a_json_line_names_the_line(tmp_path: Path, line: str, approved: Approved) -> None:
    path = file(tmp_path / "a.jsonl", f'{{"text": "good", "label": "pos"}}\n\n{line}\n')
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert caught.value.message.startswith(f"{path}, line 3: ")
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)


def test_a_file_that_is_absent_empty_unreadable_or_of_another_kind_is_named(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        read_table(tmp_path / "absent.csv")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    with pytest.raises(DataError) as raised:
        read_table(file(tmp_path / "a.txt", "text"))
    assert str(raised.value) == approved("not folder name", tmp_path=tmp_path)
    with pytest.raises(DataError, match=r"a\.jsonl is empty"):
        read_table(file(tmp_path / "a.jsonl", "\n \n"))
    with pytest.raises(DataError, match=r"b\.txt is empty"):
        read_classes({"b": file(tmp_path / "b.txt", " \n")})
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError) as raised:
        read_table(tmp_path / "folder.csv")
    assert str(raised.value) == approved("cannot read directory", tmp_path=tmp_path)


def test_a_folder_that_has_no_file_a_table_or_a_class_twice_is_named(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        class_files(tmp_path / "absent")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    with pytest.raises(DataError, match=f"{tmp_path} has no file"):
        class_files(tmp_path)
    file(tmp_path / "pos.txt", "good")
    file(tmp_path / "pos.text", "good")
    file(tmp_path / "neg.txt", "bad")
    with pytest.raises(DataError) as raised:
        class_files(tmp_path)
    assert str(raised.value) == approved("pos text both", tmp_path=tmp_path)
    file(tmp_path / "val.csv", "text,label")
    with pytest.raises(DataError) as raised:
        class_files(tmp_path)
    assert str(raised.value) == approved("table among files", tmp_path=tmp_path)
