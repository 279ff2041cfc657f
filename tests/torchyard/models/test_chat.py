"""Conversations as texts: where the assistant's turns are, and what a hostile template cannot do."""

import itertools
from pathlib import Path
import threading
from typing import Any

import pytest
import torch

from tests.approved import Approved
from tests.torchyard.models.languages import whole
from tests.trainer.bases import END, TEMPLATE, tiny_base
import torchyard
from torchyard.contract.errors import DataError
from torchyard.models import Generator, chat
from torchyard.models.chat import Message, Rendered, render

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen3's: only the last turn has thoughts."""
COUNTING = "{{ messages | length }}{% for message in messages %}{% if message.role == 'assistant' %}{{ bos_token }}"
MARKED = COUNTING + (
    "{% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ message.content }}{% endif %}"
    "{% endfor %}"
)
UNMARKED = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")
TODAY = "{{ strftime_now('%Y-%m-%d') }}{% for message in messages %}{{ message.content }}{% endfor %}"
TOKENS = {"bos_token": "<s>", "eos_token": END}


def conversation(*said: str) -> list[Message]:
    roles = ("user", "assistant")
    return [{"role": roles[place % 2], "content": content} for place, content in enumerate(said)]


TWO = conversation("Who?", "A film.", "When?", " At noon. ")


def turns(rendered: Rendered) -> list[str]:
    return [rendered.text[begin:end] for begin, end in rendered.turns]


def renderer(template: str, *, answer: bool = False) -> Any:
    """Returns what the process has, without a process."""
    return chat._Renderer(template, TOKENS, answer, 1)  # pyright: ignore[reportPrivateUsage]


def here(template: str, messages: list[Message] = TWO) -> Rendered:
    found = renderer(template).rendered([dict(message) for message in messages])
    if "problem" in found:
        raise DataError(found["problem"])
    return Rendered(**found)


def test_a_process_without_secrets_renders_all_in_their_order_until_one_eats_memory(
    monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setenv("DEPLOY_KEY", "secret")
    many = [conversation(f"Who {place}?", "A film.") for place in range(300)]
    eats = "{% if messages[0].content == 'eat' %}{{ 'x' * 2**31 }}{% endif %}"
    before = _children()
    found = render(eats + TEMPLATE, iter([*many, conversation("eat", "now")]), special_tokens=TOKENS)
    first = next(found)
    (own,) = _children() - before
    assert b"secret" not in Path(f"/proc/{own}/environ").read_bytes()
    every = [first, *itertools.islice(found, 299)]
    with pytest.raises(DataError) as raised:
        next(found)
    assert str(raised.value) == approved("message")
    assert [item.text for item in every] == [
        f"<|user|>Who {place}?{END}<|assistant|>A film.{END}" for place in range(300)
    ]
    assert {tuple(turns(item)) for item in every} == {(f"A film.{END}",)}
    assert own not in _children()


def test_a_process_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    monkeypatch.setattr(chat.sys, "executable", "/bin/false")
    with pytest.raises(DataError) as raised:
        list(render(TEMPLATE, [conversation("a" * 100_000, "b")] * 9, special_tokens=TOKENS))
    assert str(raised.value) == approved("message")


def test_a_prompt_ends_where_the_answer_begins() -> None:
    text = renderer(CHATML, answer=True).rendered(TWO[:3])["text"]
    assert text.endswith("<|im_start|>user\nWhen?<|im_end|>\n<|im_start|>assistant\n")


def test_a_turn_is_what_the_assistant_says_and_what_ends_it() -> None:
    assert turns(here(TEMPLATE)) == [f"A film.{END}", f" At noon. {END}"]
    assert turns(here(CHATML)) == ["A film.<|im_end|>", " At noon. <|im_end|>"]


def test_a_template_may_write_the_last_turn_in_another_way() -> None:
    messages = conversation("Who?", "A film.", "When?", "Now.")
    assert turns(here(THINKING, messages)) == ["A film.<|im_end|>", "<think>\n\n</think>\n\nNow.<|im_end|>"]


def test_a_template_that_shows_no_turns_needs_marks(approved: Approved) -> None:
    assert turns(here(MARKED)) == [f"A film.{END}", f" At noon. {END}"]
    with pytest.raises(DataError) as raised:
        here(UNMARKED)
    assert str(raised.value) == approved("message")


def test_a_template_reads_the_same_day_every_day() -> None:
    assert here(TODAY, conversation("a", "b")).text == "2024-07-26ab"


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must\nalternate') }}",
        "{% for",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{% include '/etc/passwd' %}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ 'x' * 10**6 }}",
        "{{ '\\ud800' }}",
    ],
)
def test_a_template_that_does_what_it_must_not_is_refused(template: str, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        here(template)
    assert str(raised.value) == approved.of_row("message")


@pytest.mark.thorough
def test_a_model_whose_template_does_not_end_says_so(tmp_path: Path) -> None:
    state = whole(tiny_base(tmp_path / "base"), form="messages")
    state["tokenizer"]["chat_template"] = "{% for a in range(99999) %}{{ 'a' * 99999 }}{% endfor %}"
    torch.save(state, tmp_path / "best.pt")
    model = torchyard.load(tmp_path / "best.pt", device="cpu")
    assert isinstance(model, Generator)
    with pytest.raises(DataError, match="the chat template"):
        model.generate("The yard")


def test_a_template_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    monkeypatch.setattr(chat, "LEAST_CPU_S", 0)
    endless = "{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(DataError) as raised:
        list(render(endless, [TWO], special_tokens=TOKENS))
    assert str(raised.value) == approved("message")


def test_a_template_of_a_mebibyte_is_not_read(approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        list(render("x" * ((1 << 20) + 1), [TWO], special_tokens=TOKENS))
    assert str(raised.value) == approved("message")


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())
