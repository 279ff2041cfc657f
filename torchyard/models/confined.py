"""Runs a stranger's tokenizer: `python -P -m torchyard.models.confined` is the process that does it, with limits.

A tokenizer is a program: a few rules of its normalizer make gigabytes of a letter, and a regular expression takes any
time. So one that is not of the kind that a training makes runs in a process with limits of memory and of time.
"""

from collections.abc import Mapping
import json
from typing import Any

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
        return self._ask({"text": text, "special": special}, characters=len(text))["ids"]

    def decode(self, tokens: list[int]) -> str:
        """Returns tokens as text, without the special ones."""
        return self._ask({"tokens": tokens}, characters=len(tokens))["text"]

    def _ask(self, question: Mapping[str, Any], *, characters: int) -> dict[str, Any]:
        cpu_s, most = TEXT_CPU_S + characters // CPU_S_CHARACTERS, _DIGITS * (LEAST_NUMBERS + MOST_TIMES * characters)
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
    return isinstance(found, dict) and all(_kind(found.get(part)) in kinds for part, kinds in _PLAIN.items())


def _kind(part: Any) -> Any:
    return part.get("type", "") if isinstance(part, dict) else part


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
    if "text" in question:
        return {"ids": encoder.encode(question["text"], add_special_tokens=question["special"]).ids}
    if "tokens" in question:
        return {"text": encoder.decode(question["tokens"], skip_special_tokens=True)}
    return {"size": encoder.get_vocab_size(), "highest": max(encoder.get_vocab().values(), default=0)}


if __name__ == "__main__":
    main()
