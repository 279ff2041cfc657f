"""Reads prompts of a language model: what it continues, and where it stops."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

from torchyard.contract.errors import DataError
from torchyard.models.chat import Message, render
from torchyard.models.checkpoint import raise_unless_failed, reason
from torchyard.models.confined import Confined, is_plain

if TYPE_CHECKING:
    from transformers import TokenizersBackend

Form = Literal["text", "prompt", "messages"]
"""What the examples of the training had."""
Prompt = str | Sequence[Message]
"""A text, or a conversation that the assistant is to answer."""


class Prompts:
    """Turns prompts into tokens, as the training did."""

    def __init__(self, tokenizer: "TokenizersBackend", *, form: Form, ends: Sequence[int]) -> None:
        """`ends`: the tokens with which a document ends by the model's configuration."""
        self.tokenizer = tokenizer
        self.form: Form = form
        content = tokenizer.backend_tokenizer.to_str()
        self._confined = None if is_plain(content) else Confined(content)
        own = tokenizer.eos_token_id
        self._ends: frozenset[int] = frozenset([*ends, *([own] if isinstance(own, int) else [])])

    @property
    def has_template(self) -> bool:
        """Whether the base has a chat template."""
        return isinstance(self.tokenizer.chat_template, str)

    def read(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Returns the tokens of each prompt. Raises DataError.

        A text is a turn of the user if the training had conversations, and else it is continued as it is.
        """
        conversations = [_conversation(prompt, self.form) for prompt in prompts]
        rendered = iter(self._rendered([each for each in conversations if each is not None], answer=True))
        return [
            self.tokens(_text(prompt), special=True) if conversation is None else self.tokens(next(rendered)[0])
            for prompt, conversation in zip(prompts, conversations, strict=True)
        ]

    def stops(self, prompt: Prompt) -> frozenset[int]:
        """Returns the tokens that end what continues a prompt."""
        return self._ends if _conversation(prompt, self.form) is None else self._ends | self.turn_ends

    @cached_property
    def turn_ends(self) -> frozenset[int]:
        """What ends an answer by the chat template, if that is a special token, as it may be another than a text's."""
        conversation = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        ((text, turns),) = self._rendered([conversation], answer=False)
        tokens = self.tokens(text[slice(*turns[-1])]) if turns else []
        special = {*self.tokenizer.all_special_ids, *self.tokenizer.added_tokens_decoder}
        return frozenset[int](token for token in tokens[-1:] if token in special)

    def decode(self, tokens: list[int]) -> str:
        """Returns tokens as text, without the special ones. Raises DataError."""
        if self._confined is not None:
            return self._confined.decode(tokens)
        text = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Returns the tokens of a text. Raises DataError.

        `special`: whether the tokenizer adds tokens, such as one that begins a text. It does not end it.
        """
        try:
            tokens: list[int] = (
                self.tokenizer.encode(text, add_special_tokens=special, verbose=False)
                if self._confined is None
                else self._confined.encode(text, special=special)
            )
        except DataError as error:
            raise DataError(f"the tokenizer cannot read a prompt: {error.message}") from error
        except BaseException as error:  # a tokenizer from a file may do anything that is not expected
            raise_unless_failed(error)
            raise DataError(f"the tokenizer cannot read a prompt: {reason(error)}") from error
        if special and len(tokens) > 1 and tokens[-1] == self.tokenizer.eos_token_id:
            del tokens[-1]
        if not tokens:
            raise DataError("a prompt has no tokens")
        return tokens

    def _rendered(self, conversations: Sequence[Sequence[Message]], *, answer: bool) -> list[tuple[str, Any]]:
        if not conversations:
            return []
        template = self.tokenizer.chat_template
        if not isinstance(template, str):
            raise DataError("its base has no chat template, which messages need: give the prompt as a text")
        special = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        found = render(template, conversations, special_tokens=special, answer=answer)
        return [(each.text, each.turns) for each in found]


def _conversation(prompt: Prompt, form: Form) -> Sequence[Message] | None:
    """Returns the messages of a prompt; None if it is continued as it is. Raises DataError."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": _text(prompt)}] if form == "messages" else None
    if not isinstance(prompt, Sequence) or not prompt:  # pyright: ignore[reportUnnecessaryIsInstance] it may be anything
        raise DataError("a prompt is a text, or a list of at least one message")
    return [{key: _text(value, f"the {key} of a message") for key, value in _keys(each).items()} for each in prompt]


def _keys(message: Any) -> Mapping[str, Any]:
    if not isinstance(message, Mapping) or {*cast("Mapping[Any, Any]", message)} != {"role", "content"}:
        raise DataError('a message is {"role": …, "content": …}, and has no other keys')
    return cast("Mapping[str, Any]", message)


def _text(found: Any, what: str = "a prompt") -> str:
    if not isinstance(found, str):
        raise DataError(f"{what} is a string, not {type(found).__name__}")
    if not found:
        raise DataError(f"{what} is empty")
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{what} holds half of a surrogate pair, which is not a character") from error
    return found
