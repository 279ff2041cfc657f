"""Reads examples for a language model from JSON lines: texts, prompts with completions, or conversations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any, Literal

from torchyard.contract.errors import DataError
from torchyard.models.chat import Message
from trainer.data.splits import TRAIN, VALIDATION

Form = Literal["text", "prompt", "messages"]

SUFFIXES = (".jsonl", ".ndjson", ".json")
ROLES = ("system", "user", "assistant", "tool")
MOST_LINE_BYTES = 64 << 20
MOST_MESSAGES = 1000
_KEYS: dict[Form, tuple[str, ...]] = {"text": ("text",), "prompt": ("prompt", "completion"), "messages": ("messages",)}
_FORMS = "text, prompt and completion, or messages"
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Example:
    """One line. It has a text, or messages."""

    file: Path
    line: int
    """Counted from 1."""
    form: Form
    text: str = ""
    """A text, or a prompt with its completion."""
    begins: int = 0
    """The character at which the completion begins."""
    messages: Sequence[Message] = ()

    @property
    def where(self) -> str:
        return f"{self.file}, line {self.line}"

    @property
    def values(self) -> list[Any]:
        """What the line says, as JSON."""
        return [
            self.form,
            self.text,
            self.begins,
            *([message["role"], message["content"]] for message in self.messages),
        ]


def source_files(path: Path) -> tuple[Path, Path | None]:
    """Returns the file of a source, or those for training and for validation. Raises DataError."""
    if not path.exists():
        raise DataError(f"there is no {path}")
    if path.is_dir():
        return _split_file(path, (TRAIN,)), _split_file(path, VALIDATION)
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is not a folder, and its name does not end in {', '.join(SUFFIXES)}")
    return path, None


def read_examples(file: Path) -> Iterator[Example]:
    """Yields the example of each line that is not blank. All have the form of the first one. Raises DataError."""
    form: Form | None = None
    for number, line in _lines(file):
        where = f"{file}, line {number}"
        record = _record(line, where)
        own = _form(record, where)
        if form is not None and own != form:
            raise DataError(f"{where}: has {_said(own)}, and the lines before it {_said(form)}: all must have the same")
        form = own
        yield Example(file, number, own, **_content(record, own, where))
    if form is None:
        raise DataError(f"{file} is empty")


def _split_file(root: Path, words: Sequence[str]) -> Path:
    files = [root / f"{word}{suffix}" for word in words for suffix in SUFFIXES]
    existing = [file for file in files if file.is_file()]
    if len(existing) > 1:
        raise DataError(f"{root} has {existing[0].name} and {existing[1].name}: one file is for {words[0]}")
    if not existing:
        raise DataError(
            f"there is no {root / words[0]}.jsonl: a folder has train.jsonl and val.jsonl; or name one file"
        )
    return existing[0]


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with file.open("rb") as opened:
            number = 0
            while line := opened.readline(MOST_LINE_BYTES):
                number += 1
                if len(line) == MOST_LINE_BYTES and not line.endswith(b"\n"):
                    raise DataError(f"{file}, line {number}: has more than {MOST_LINE_BYTES >> 20} MiB; split it")
                if number == 1:
                    line = line.removeprefix(_MARK)
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error


def _record(line: bytes, where: str) -> Mapping[str, Any]:
    hint = "; `jq -c '.[]' FILE` writes an array so" if line.startswith(b"[") else ""
    try:
        record = json.loads(line.decode().rstrip(), object_pairs_hook=_without_repeats, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: is not UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        # Its own words count lines within the line, and call the end of it a line 2.
        raise DataError(f"{where}: is not JSON: {error.msg} at character {error.pos + 1} of the line{hint}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON: {error}{hint}") from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: is not an object: each line is one, with {_FORMS}{hint}")
    return record


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"it has the key {name[:100]!r} twice")
        values[name] = value
    return values


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _form(record: Mapping[str, Any], where: str) -> Form:
    forms: list[Form] = [form for form, keys in _KEYS.items() if any(key in record for key in keys)]
    if not forms:
        raise DataError(f"{where}: has no {_FORMS.replace(' and ', ' with ')}")
    keys = [key for form in forms for key in _KEYS[form] if key in record]
    if len(forms) > 1:
        raise DataError(f"{where}: has {' and '.join(keys)}: it must have {_FORMS}; leave out the others")
    for key in _KEYS[forms[0]]:
        if key not in record:
            raise DataError(f"{where}: has {keys[0]} and no {key}: add it, or use text for what has one part")
    return forms[0]


def _said(form: Form) -> str:
    return " and ".join(_KEYS[form])


def _content(record: Mapping[str, Any], form: Form, where: str) -> dict[str, Any]:
    if form == "messages":
        return {"messages": _messages(record["messages"], where)}
    if form == "text":
        return {"text": _string(record["text"], "text", where)}
    prompt, completion = (_string(record[key], key, where) for key in _KEYS["prompt"])
    if not completion.strip():
        raise DataError(f"{where}: completion is blank: there is nothing to learn; remove the line")
    return {"text": prompt + completion, "begins": len(prompt)}


def _messages(written: Any, where: str) -> list[Message]:
    if not isinstance(written, list) or not written:
        raise DataError(f"{where}: messages is not a list of messages")
    if len(written) > MOST_MESSAGES:
        raise DataError(
            f"{where}: has {len(written)} messages; at most {MOST_MESSAGES} are read: split the conversation"
        )
    messages: list[Message] = []
    for number, message in enumerate(written, start=1):
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
            raise DataError(f"{where}: message {number} is not an object with role and content")
        if message["role"] not in ROLES:
            raise DataError(f"{where}: the role of message {number} is none of {', '.join(ROLES)}")
        if message.get("tool_calls"):
            raise DataError(
                f"{where}: message {number} has tool_calls, which are not read: write them into its content"
            )
        messages.append(
            {
                "role": message["role"],
                "content": _string(message["content"], f"the content of message {number}", where),
            }
        )
    if not any(message["role"] == "assistant" for message in messages):
        raise DataError(f"{where}: has no message of the assistant: there is nothing to learn; remove the line")
    return messages


def _string(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {name} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: {name} holds half of a surrogate pair, which is not a character") from error
    return value
