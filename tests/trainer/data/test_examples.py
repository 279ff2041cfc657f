"""JSON lines: what is read, and what is said about a line that is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from torchyard.contract.errors import DataError
from trainer.data.examples import MOST_LINE_BYTES, MOST_MESSAGES, Example, read_examples, source_files


def file(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, content: str | bytes) -> list[Example]:
    return list(read_examples(file(path, content)))


def messages(*said: tuple[str, Any]) -> str:
    return json.dumps({"messages": [{"role": role, "content": content} for role, content in said]})


def test_the_three_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert read(path, '{"text": "a b", "id": 7}') == [Example(path, 1, "text", "a b")]
    assert read(path, '{"completion": "b", "prompt": "a "}') == [Example(path, 1, "prompt", "a b", begins=2)]
    (found,) = read(path, messages(("system", "s"), ("user", ""), ("assistant", "a"), ("tool", "t")))
    assert [(message["role"], message["content"]) for message in found.messages] == [
        ("system", "s"),
        ("user", ""),
        ("assistant", "a"),
        ("tool", "t"),
    ]


def test_blank_lines_a_byte_order_mark_and_carriage_returns_are_no_content(tmp_path: Path) -> None:
    found = read(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "a"}\r\n\r\n \n{"text": "\xc3\xbc"}\r\n')
    assert [(example.line, example.text) for example in found] == [(1, "a"), (4, "ü")]


BAD = [
    (b'{"text": "\xff"}', "is not UTF-8 at byte 11 of the line; save the file as UTF-8"),
    ('{"text": "a"\n', "is not JSON: Expecting ',' delimiter at character 13 of the line$"),
    ('{"text": "a", "text": "b"}', "is not JSON: it has the key 'text' twice"),
    ('{"text": NaN}', "is not JSON: NaN is not a number of JSON"),
    ('{"text": ' + "[" * 100_000 + "}", "is not JSON: "),
    ('{"text": ' + "1" * 10_000 + "}", "is not JSON: "),
    ('[{"text": "a"}]', "is not an object: each line is one, .*; `jq -c '.\\[\\]' FILE` writes an array so"),
    ("[", "is not JSON: .*; `jq -c '.\\[\\]' FILE` writes an array so"),
    ('"a"', "is not an object: each line is one, with text, prompt and completion, or messages$"),
    ("{}", "has no text, prompt with completion, or messages"),
    (
        '{"text": "a", "messages": []}',
        "has text and messages: it must have text, prompt and completion, or messages; leave out the others",
    ),
    ('{"prompt": "a"}', "has prompt and no completion: add it, or use text for what has one part"),
    ('{"completion": "a"}', "has completion and no prompt"),
    ('{"prompt": "a", "completion": " \\n"}', "completion is blank: there is nothing to learn; remove the line"),
    ('{"prompt": ["a"], "completion": "b"}', "prompt is not a string"),
    ('{"prompt": "a", "completion": null}', "completion is not a string"),
    ('{"text": 7}', "text is not a string"),
    ('{"text": "\\ud800"}', "text holds half of a surrogate pair"),
    ('{"messages": {}}', "messages is not a list of messages"),
    ('{"messages": []}', "messages is not a list of messages"),
    ('{"messages": ["a"]}', "message 1 is not an object with role and content"),
    ('{"messages": [{"role": "user"}]}', "message 1 is not an object with role and content"),
    (messages(("user", "a"), ("model", "b")), "the role of message 2 is none of system, user, assistant, tool"),
    ('{"messages": [{"role": [], "content": "a"}]}', "the role of message 1 is none of"),
    (
        '{"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]}',
        "message 1 has tool_calls, which are not read: write them into its content",
    ),
    (messages(("user", [{"type": "text"}])), "the content of message 1 is not a string"),
    (messages(("user", "a")), "has no message of the assistant: there is nothing to learn; remove the line"),
    (messages(*[("assistant", "a")] * (MOST_MESSAGES + 1)), "has 1001 messages; at most 1000 are read"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=range(len(BAD)))
def test_an_error_names_the_file_the_line_and_what_is_wrong(tmp_path: Path, line: str | bytes, message: str) -> None:
    content = b"\n" + (line if isinstance(line, bytes) else line.encode()) + b"\n"
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{message}") as caught:
        read(tmp_path / "a.jsonl", content)
    assert "\n" not in caught.value.message


def test_all_lines_have_the_form_of_the_first_one(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        read(tmp_path / "a.jsonl", '{"text": "a"}\n{"prompt": "a", "completion": "b"}\n')
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_line_without_an_end_is_not_read_whole(tmp_path: Path, approved: Approved) -> None:
    with file(tmp_path / "a.jsonl", "").open("r+b") as opened:
        opened.truncate(MOST_LINE_BYTES + 1)
    with pytest.raises(DataError) as raised:
        list(read_examples(tmp_path / "a.jsonl"))
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize("content", ["", "\n \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl is empty"):
        read(tmp_path / "a.jsonl", content)


def test_a_source_is_a_file_or_a_folder_with_one_for_each_split(tmp_path: Path, approved: Approved) -> None:
    train = file(tmp_path / "train.jsonl", "")
    assert source_files(train) == (train, None)
    with pytest.raises(DataError) as raised:
        source_files(tmp_path)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    val = file(tmp_path / "val.json", "")
    assert source_files(tmp_path) == (train, val)
    file(tmp_path / "val.ndjson", "")
    with pytest.raises(DataError) as raised:
        source_files(tmp_path)
    assert str(raised.value) == approved("val ndjson val", tmp_path=tmp_path)


def test_another_kind_of_source_is_an_error(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        source_files(tmp_path / "a.jsonl")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    with pytest.raises(DataError) as raised:
        source_files(file(tmp_path / "a.csv", ""))
    assert str(raised.value) == approved("not folder name", tmp_path=tmp_path)
    with pytest.raises(DataError) as raised:
        list(read_examples(file(tmp_path / "a.jsonl" / "b", "").parent))
    assert str(raised.value) == approved("cannot read directory", tmp_path=tmp_path)
