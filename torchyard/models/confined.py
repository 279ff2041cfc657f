"""Runs a stranger's tokenizer: `python -P -m torchyard.models.confined` is the process that does it, with limits.

A tokenizer is a program: a few rules of its normalizer make gigabytes of a letter, and a regular expression takes any
time. So one that is not of the kind that a training makes runs in a process with limits of memory and of time.
"""

from collections.abc import Iterator, Mapping, Sequence
import json
from typing import Any, NamedTuple

from torchyard.contract.errors import DataError
from torchyard.host.confined import Answer, Ended, serve
from torchyard.host.confined import Confined as Process

MEMORY_BYTES = 2 << 30
"""Python and a tokenizer of 64 MiB take 1 GB of it."""
LOAD_CPU_S = 60
"""Seconds of processor time that the tokenizer may take until it is ready."""
TEXT_CPU_S = 5
"""Those that a text may take at least."""
CPU_S_CHARACTERS = 20_000
"""A text may take one more second for so many of its characters. Most tokenizers need a fiftieth of that."""
LEAST_NUMBERS = 1 << 16
"""Tokens that a text may become at least, and characters that tokens may."""
MOST_TIMES = 64
"""So many more tokens for each character of a text, and characters for each token."""
BATCH_CHARACTERS = 1 << 16
"""Those of texts that are sent together, at most, unless one has more: what comes back has a bound, too."""
_DIGITS = 12
"""Characters of a token in an answer, or of a character as JSON writes it."""
_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_PLAIN = {
    "normalizer": (None,),
    "pre_tokenizer": ("ByteLevel",),
    "decoder": ("ByteLevel",),
    "post_processor": (None, "ByteLevel", "RobertaProcessing"),
    "model": ("BPE",),
    "padding": (None,),
}
"""The parts of the tokenizers that a training makes. What they take grows with the text alone."""
_ADDS_NOTHING: dict[str, Any] = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {},
}
"""The post-processor that transformers writes for a tokenizer without one."""


class Encoded(NamedTuple):
    """The tokens of a text."""

    ids: list[int]
    offsets: list[list[int]]
    """Of each token the characters of the text that it has; none if they were not asked for."""


class Confined:
    """A tokenizer in a process of its own. Threads may share it.

    Each method raises DataError if the tokenizer fails, or takes more than it may; the next call tries it again.
    """

    def __init__(self, content: str, *, max_length: int | None = None) -> None:
        """`content`: that of `tokenizer.json`. With `max_length`, texts are cut there, as `TokenizerFiles` does."""
        order = json.dumps({"content": content, "max_length": max_length}).encode()
        self._process = Process(__name__, order=order, load_cpu_s=LOAD_CPU_S, environment=_ONE_THREAD)
        answer = self._ask({"facts": True}, characters=0)
        self.size: int = answer["size"]
        """The number of tokens."""
        self.highest: int = answer["highest"]
        """The largest number of a token."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Returns the tokens of a text. `special`: whether the tokenizer adds some."""
        return next(self.encode_all([text], special=special)).ids

    def encode_all(self, texts: Sequence[str], *, special: bool = True, offsets: bool = False) -> Iterator[Encoded]:
        """Yields the tokens of each text. `offsets`: with the characters that each token has."""
        for some in _batches(texts):
            question = {"texts": some, "special": special, "offsets": offsets}
            characters = sum(len(text) + 1 for text in some)
            for found in self._ask(question, characters=characters, numbers=3 if offsets else 1)["encodings"]:
                yield Encoded(*found)

    def decode(self, tokens: list[int], *, special: bool = False) -> str:
        """Returns tokens as text. `special`: with the special ones."""
        return self._ask({"tokens": tokens, "special": special}, characters=len(tokens))["text"]

    def _ask(self, question: Mapping[str, Any], *, characters: int, numbers: int = 1) -> dict[str, Any]:
        """`numbers`: so many of each token are in the answer."""
        cpu_s = TEXT_CPU_S + characters // CPU_S_CHARACTERS
        most = numbers * _DIGITS * (LEAST_NUMBERS + MOST_TIMES * characters)
        try:
            line = self._process.ask(json.dumps(question).encode(), cpu_s=cpu_s, most=most)
        except Ended as end:
            raise DataError(_problem(end)) from None
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise DataError(answer["problem"])
        return answer


def is_plain(content: str) -> bool:
    """Returns whether the content of `tokenizer.json` is of the kind that a training makes."""
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict):
        return False
    if found.get("post_processor") == _ADDS_NOTHING:
        del found["post_processor"]
    return all(_kind(found.get(part)) in kinds for part, kinds in _PLAIN.items())


def _kind(part: Any) -> Any:
    return part.get("type", "") if isinstance(part, dict) else part


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yields texts that are sent together."""
    some: list[str] = []
    characters = 0
    for text in texts:
        if some and characters + len(text) > BATCH_CHARACTERS:
            yield some
            some, characters = [], 0
        some.append(text)
        characters += len(text) + 1
    if some:
        yield some


def _problem(end: Ended) -> str:
    if end.too_long:
        return "the tokenizer makes too much of a text"
    if end.too_slow:
        return "the tokenizer takes too much processor time"
    most = f"{MEMORY_BYTES >> 30} GiB of memory"
    return f"the tokenizer takes more than {most}, or has failed: its process ended with {end.code}"


def main() -> None:
    serve(_prepared, memory_bytes=MEMORY_BYTES)


def _prepared(order: bytes) -> Answer:
    try:
        encoder = _encoder(**json.loads(order))
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
        problem = _told(error)
        return lambda _: problem

    def answer(question: bytes) -> bytes:
        try:
            return json.dumps(_answer(encoder, json.loads(question))).encode()
        except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
            return _told(error)

    return answer


def _told(error: BaseException) -> bytes:
    problem = (str(error).strip() or type(error).__name__).splitlines()[0][:500]
    return json.dumps({"problem": problem}).encode()


def _encoder(content: str, max_length: int | None) -> Any:
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_str(content)
    encoder.no_padding()
    encoder.no_truncation()
    if max_length is not None:
        encoder.enable_truncation(max_length)
        encoder.encode_special_tokens = True
    return encoder


def _answer(encoder: Any, question: Mapping[str, Any]) -> dict[str, Any]:
    if "texts" in question:
        encode = encoder.encode_batch if question["offsets"] else encoder.encode_batch_fast
        found = encode(question["texts"], add_special_tokens=question["special"])
        return {"encodings": [[each.ids, each.offsets if question["offsets"] else []] for each in found]}
    if "tokens" in question:
        return {"text": encoder.decode(question["tokens"], skip_special_tokens=not question["special"])}
    return {"size": encoder.get_vocab_size(), "highest": max(encoder.get_vocab().values(), default=0)}


if __name__ == "__main__":
    main()
