"""Tokens, chosen one after the other, and the text that they are."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.approved import Approved
from tests.trainer.bases import tiny_base
from torchyard.contract.errors import ConfigError, DataError
from torchyard.models.generation import Forward, Sampling, continued
from torchyard.models.pieces import Pieces

CPU = torch.device("cpu")
PROMPTS = [[9, 40, 41], [12, 13, 14, 15, 16, 17, 18, 19, 20], [33]]


@pytest.fixture(
    scope="module",
    params=["llama", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("gpt2", "gemma3_text"))],
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoModelForCausalLM

    folder = tiny_base(tmp_path_factory.mktemp(request.param), kind=request.param)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def forward_of(model: Any) -> Forward:
    @torch.no_grad()
    def forward(**inputs: Any) -> tuple[Tensor, Any]:
        found = model(**inputs, use_cache=True, logits_to_keep=1)
        return found.logits[:, -1].float(), found.past_key_values

    return forward


def texts(forward: Forward, prompts: list[list[int]], *, stops: set[int], most: int = 12, **how: Any) -> list[Any]:
    """Returns the tokens that continue each prompt."""
    found: list[list[int]] = [[] for _ in prompts]
    steps = continued(forward, prompts, most=most, stops=[stops] * len(prompts), sampling=Sampling(**how), device=CPU)
    for step in steps:
        for tokens, token in zip(found, step, strict=True):
            tokens.extend([] if token is None else [token])
    return found


def test_the_likeliest_tokens_are_those_of_transformers_alone_and_in_a_batch(model: Any) -> None:
    expected: list[list[int]] = []
    for prompt in PROMPTS:
        made = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=12, eos_token_id=None)
        expected.append(made[0, len(prompt) :].tolist())
    forward = forward_of(model)
    assert texts(forward, PROMPTS, stops=set()) == expected
    assert [texts(forward, [prompt], stops=set())[0] for prompt in PROMPTS] == expected
    stop = expected[0][3]
    ended = texts(forward, PROMPTS, stops={stop})
    assert ended == [tokens[: tokens.index(stop) + 1] if stop in tokens else tokens for tokens in expected]


def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch(model: Any) -> None:
    forward = forward_of(model)
    how: dict[str, Any] = {"temperature": 1.5, "top_p": 0.95, "seed": 3}
    before = torch.get_rng_state()
    together = texts(forward, PROMPTS, stops=set(), **how)
    assert together == [texts(forward, [prompt], stops=set(), **how)[0] for prompt in PROMPTS]
    assert torch.equal(torch.get_rng_state(), before)
    assert together != texts(forward, PROMPTS, stops=set(), **{**how, "seed": 4})
    free: dict[str, Any] = {"temperature": 1.5, "top_p": 0.95}
    assert texts(forward, PROMPTS, stops=set(), **free) != texts(forward, PROMPTS, stops=set(), **free)
    coldest = texts(forward, PROMPTS, stops=set(), temperature=5e-324, seed=1)
    assert coldest == texts(forward, PROMPTS, stops=set())


def fixed(*shares: float) -> Forward:
    def forward(**inputs: Tensor) -> tuple[Tensor, None]:
        return torch.tensor(shares).log().repeat(len(inputs["input_ids"]), 1), None

    return forward


@pytest.mark.parametrize(
    ("how", "shares"),
    [
        pytest.param({"temperature": 1.0}, [0.1, 0.2, 0.3, 0.4], marks=pytest.mark.thorough),
        ({"temperature": 0.5}, [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
        ({"temperature": 1.0, "top_p": 0.5}, [0, 0, 3 / 7, 4 / 7]),
        pytest.param({"temperature": 1.0, "top_p": 1e-9}, [0, 0, 0, 1], marks=pytest.mark.thorough),
    ],
)
def test_tokens_are_drawn_by_their_probabilities(how: dict[str, float], shares: list[float]) -> None:
    (tokens,) = texts(fixed(0.1, 0.2, 0.3, 0.4), [[0]], stops=set(), most=800, seed=0, **how)
    counts = Counter(tokens)
    assert [counts[token] / len(tokens) for token in range(4)] == pytest.approx(shares, abs=0.06)


def test_numbers_that_are_no_probabilities_are_refused(approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        texts(fixed(0.1, float("nan")), [[0]], stops=set())
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"temperature": -0.1}, "temperature must be 0 or above; got -0.1"),
        ({"temperature": float("nan")}, "temperature must be 0 or above; got nan"),
        ({"temperature": float("inf")}, "temperature must be 0 or above; got inf"),
        ({"top_p": 0.0}, "top_p must be above 0, and at most 1; got 0.0"),
        ({"top_p": 1.1}, r"at most 1; got 1\.1"),
        ({"top_p": float("nan")}, "at most 1; got nan"),
        ({"seed": -1}, "; got -1"),
        ({"seed": 1 << 63}, "; got 9223372036854775808"),
    ],
)
def test_a_way_to_choose_that_means_nothing_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling(**how)


def pieces(tokens: list[int], *, prompt: str = "") -> list[str]:
    """Returns the pieces of bytes that are tokens."""

    def decode(tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    stream = Pieces(decode, [*prompt.encode()])
    return [*map(stream.push, tokens), stream.end()]


def test_a_piece_never_ends_within_a_character() -> None:
    assert pieces([*"aü😀".encode()], prompt="ö") == ["a", "", "ü", "", "", "", "😀", ""]
    assert pieces([*"aü😀".encode()][:-1]) == ["a", "", "ü", "", "", "", "\N{REPLACEMENT CHARACTER}"]


def test_bytes_that_are_no_characters_do_not_wait_forever() -> None:
    found = pieces([0xFF] * 100)
    assert "".join(found) == "\N{REPLACEMENT CHARACTER}" * 100
    assert sum(map(bool, found)) > 5
