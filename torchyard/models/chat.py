"""Renders conversations by a base's chat template: `python -P -m torchyard.models.chat` is the process that does it.

Whoever made the base may be hostile. So a template runs in transformers' sandbox, in a process of its own with a limit
of processor time for each portion and of memory, and the caller reads no more of its texts than they may be long.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import contextlib
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from typing import IO, Any, cast

from torchyard.contract.errors import DataError
from torchyard.host.parent import end_with_parent

Message = Mapping[str, str]
"""`role` and `content`."""
Spans = list[tuple[int, int]]
"""Where parts of a text begin and end, in characters."""

MOST_TEMPLATE_BYTES = 1 << 20
MEMORY_BYTES = 1 << 30
"""Python and transformers take 200 MB of it."""
LEAST_CPU_S = 20
"""Seconds of processor time that each portion may take at least."""
CPU_S_BYTES = 50_000
"""A portion may take one more second for so many bytes of conversations. Most templates need a hundredth of that."""
LEAST_TEXT = 1 << 16
"""Characters that each text may have at least."""
MOST_TIMES = 8
"""A text may have so many more characters for each byte of its conversation."""
ADVICE = "use another base, or data with prompt and completion"
_PORTION = 128
"""Conversations that are rendered at once."""
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_DAY = datetime(2024, 7, 26)  # noqa: DTZ001 it is only written out
"""What templates take for today, so that they write the same each day. Llama's name it where they find no clock."""


@dataclass(frozen=True)
class Rendered:
    """A conversation as the model reads it."""

    text: str
    """All of it, with the special tokens that the template writes."""
    turns: Spans
    """Where the assistant's turns are: what it says, and what ends the turn."""


def render(
    template: str,
    conversations: Iterable[Sequence[Message]],
    *,
    special_tokens: Mapping[str, str],
    answer: bool = False,
) -> Iterator[Rendered]:
    """Yields each conversation as a text, in order. One process renders all, and ends with this iterator.

    `special_tokens`: those of the tokenizer by their names in templates, such as `eos_token`. `answer`: the text ends
    where the assistant's answer is to begin, and `turns` are empty. Raises DataError at the first conversation that the
    template does not render: those before it were yielded.
    """
    if len(template.encode(errors="surrogatepass")) > MOST_TEMPLATE_BYTES:
        raise DataError(f"the chat template has more than {MOST_TEMPLATE_BYTES >> 20} MiB: {ADVICE}")
    order = {
        "template": template,
        "special_tokens": dict(special_tokens),
        "answer": answer,
        "least_seconds": LEAST_CPU_S,
    }
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    with process:
        try:
            _send(process.stdin, order)
            waiting = iter(conversations)
            while portion := [[dict(message) for message in found] for found in islice(waiting, _PORTION)]:
                yield from _answers(process, portion)
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):  # what was not sent any more
                process.stdin.close()


def _answers(process: "subprocess.Popen[bytes]", portion: list[list[dict[str, str]]]) -> Iterator[Rendered]:
    assert process.stdin is not None
    assert process.stdout is not None
    size = _send(process.stdin, portion)
    most = len(portion) * LEAST_TEXT + MOST_TIMES * size
    line = process.stdout.readline(6 * most)  # JSON writes a character as six, at most
    if not line.endswith(b"\n"):
        if len(line) == 6 * most:
            raise DataError(f"the chat template writes more than {most} characters: {ADVICE}")
        raise DataError(_end(process.wait(), size))
    for found in cast("list[dict[str, Any]]", json.loads(line)):
        if "problem" in found:
            raise DataError(found["problem"])
        yield Rendered(found["text"], [(begin, end) for begin, end in found["turns"]])


def _send(pipe: IO[bytes], value: Any) -> int:
    line = json.dumps(value).encode() + b"\n"
    with contextlib.suppress(BrokenPipeError):  # its end is seen when its answer is read
        pipe.write(line)
        pipe.flush()
    return len(line)


def _end(code: int, size: int) -> str:
    if code == -signal.SIGXCPU:
        seconds = LEAST_CPU_S + size // CPU_S_BYTES
        return f"the chat template takes more than {seconds} s of processor time: {ADVICE}"
    return f"the process of the chat template ended with {code}, perhaps for want of memory: {ADVICE}"


def main() -> None:
    """Reads an order and portions of conversations, a line each, and writes a line for each portion."""
    end_with_parent(signal.SIGKILL)  # a trainer that is killed leaves nobody who renders
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    renderer: _Renderer | None = None
    for line in sys.stdin.buffer:
        if renderer is None:
            renderer = _Renderer(**json.loads(line))
            continue
        seconds = int(time.process_time()) + 1 + renderer.least_seconds + len(line) // CPU_S_BYTES
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        sys.stdout.write(json.dumps([renderer.rendered(found) for found in json.loads(line)]) + "\n")
        sys.stdout.flush()


class _Renderer:
    def __init__(self, template: str, special_tokens: dict[str, str], answer: bool, least_seconds: int) -> None:
        from transformers.utils import chat_template_utils

        self.least_seconds = least_seconds
        chat_template_utils.datetime = _StandingClock
        self._render = chat_template_utils.render_jinja_template
        self._options = {"chat_template": template, **special_tokens}
        self._answer = answer

    def rendered(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        """Returns the text of a conversation and the assistant's turns, or the problem."""
        random.seed(0)
        try:
            text = self._text(messages, answer=self._answer)
            if len(text) > (most := LEAST_TEXT + MOST_TIMES * len(json.dumps(messages))):
                return {"problem": f"the chat template writes more than {most} characters: {ADVICE}"}
            text.encode()
        except MemoryError:
            return {"problem": f"the chat template needs more than {MEMORY_BYTES >> 30} GiB of memory: {ADVICE}"}
        except Exception as error:  # noqa: BLE001 a template may raise anything
            return {"problem": f"the chat template refuses it: {_reason(error)}"}
        turns = [] if self._answer else self._turns(text, messages)
        if turns is None:
            return {
                "problem": "the chat template does not show where the assistant's turns are: it writes the beginning "
                f"of a conversation in another way than the whole, and has no generation marks. {ADVICE.capitalize()}"
            }
        return {"text": text, "turns": turns}

    def _turns(self, text: str, messages: list[dict[str, str]]) -> Spans | None:
        """Returns where the assistant's turns are, or where the template marks them. None: neither can be told."""
        try:
            found = [
                self._turn(text, messages, place) for place, message in enumerate(messages) if _is_assistants(message)
            ]
        except Exception:  # noqa: BLE001 some templates refuse the beginning of a conversation
            found = [None]
        spans = [span for span in found if span is not None]
        return spans if len(spans) == len(found) else self._marked(text, messages)

    def _turn(self, text: str, messages: list[dict[str, str]], place: int) -> tuple[int, int] | None:
        before = self._text(messages[:place], answer=True)
        after = self._text(messages[: place + 1], answer=False)
        if not text.startswith(before):
            return None
        content = messages[place]["content"].strip()
        at = after.rfind(content, len(before))
        closing = after[at + len(content) if at >= 0 else len(before) :]
        end = len(after)
        if not text.startswith(after):  # some templates write the last turn in another way, such as with its thoughts
            if at < 0 or not text.startswith(content + closing, len(before)):
                return None
            end = len(before) + len(content) + len(closing)
        # A line break after what ends the turn is not the assistant's.
        return len(before), end - (len(closing) - len(closing.rstrip()) if closing.strip() else 0)

    def _marked(self, text: str, messages: list[dict[str, str]]) -> Spans | None:
        marked, spans = self._render([messages], return_assistant_tokens_mask=True, **self._options)
        return spans[0] if marked[0] == text and spans[0] else None

    def _text(self, messages: list[dict[str, str]], *, answer: bool) -> str:
        return self._render([messages], add_generation_prompt=answer, **self._options)[0][0]


class _StandingClock:
    @staticmethod
    def now() -> datetime:
        return _DAY


def _is_assistants(message: dict[str, str]) -> bool:
    return message["role"] == "assistant"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


if __name__ == "__main__":
    main()
