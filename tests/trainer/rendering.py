"""Renders chat templates in this process, by the code of `torchyard.models.chat`: one of its own imports transformers.

`tests/torchyard/models/test_chat.py` shows that process, and what a hostile template cannot do in it.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
import random

import pytest

from torchyard.contract.errors import DataError
from torchyard.models import chat, prompts
from torchyard.models.chat import Message, Rendered
from trainer.data import documents


@contextmanager
def rendered_here() -> Generator[None]:
    """Renders here for the duration of the block. No template may be one that does not end."""
    from transformers.utils import chat_template_utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", chat_template_utils.datetime)  # the renderer sets its own
        patch.setattr(prompts, "render", _render)
        patch.setattr(documents, "render", _render)
        yield


def _render(
    template: str,
    conversations: Iterable[Sequence[Message]],
    *,
    special_tokens: Mapping[str, str],
    answer: bool = False,
) -> Iterator[Rendered]:
    renderer = chat._Renderer(  # pyright: ignore[reportPrivateUsage]
        template, dict(special_tokens), answer, chat.LEAST_CPU_S
    )
    for messages in conversations:
        state = random.getstate()
        found = renderer.rendered([dict(message) for message in messages])
        random.setstate(state)
        if "problem" in found:
            raise DataError(found["problem"])
        yield Rendered(**found)
