"""Says whether the steps of an expression grow faster than the text, and which ones are known to pass."""

from functools import cache
from hashlib import sha256
import math
from pathlib import Path

from tests.security.steps import Attack, Matcher, TooManyError

MEASURED = Path(__file__).with_name("measured.txt")
"""The keys of expressions that have passed."""
MOST_STEPS = 30_000
"""For the longer text. What needs more has failed."""
FEW_STEPS = 0.25
"""For each pair of characters of the shorter text: what needs no more for its double has no need of a second text."""
SIZE, SURE = 32, 64
"""Lengths of the shorter text. In one of `SIZE`, repeats of at most 20 look as if they grew too fast."""
MOST_TIMES = 2.6
"""As many steps a text of twice the length may take. Repeats of at most 20 make it a little more than 2."""


def worst_attack(matcher: Matcher) -> tuple[Attack, float, float] | None:
    """Returns a text, and the steps that it takes and that one of twice the length takes, if they grow too fast."""
    return _attack_of(matcher, SURE) if _attack_of(matcher, SIZE) is not None else None


def key_of(matcher: Matcher) -> str:
    """Returns the digest of all that decides the result: the parsed expression, and the code that measures it."""
    return sha256(f"{matcher.identity} {_code()}".encode()).hexdigest()[:24]


@cache
def measured() -> frozenset[str]:
    return frozenset(MEASURED.read_text().split())


@cache
def _code() -> str:
    """Returns the digest of this file and of the matcher's."""
    return sha256(
        b"".join(Path(__file__).with_name(name).read_bytes() for name in ("growth.py", "steps.py"))
    ).hexdigest()


def _attack_of(matcher: Matcher, size: int) -> tuple[Attack, float, float] | None:
    for attack in matcher.attacks():
        long = _steps(matcher, attack.of(2 * size))
        if long <= FEW_STEPS * 2 * size * size:
            continue
        short = _steps(matcher, attack.of(size))
        if long == math.inf or long > MOST_TIMES * short:
            return attack, short, long
    return None


def _steps(matcher: Matcher, text: str) -> float:
    try:
        return matcher.steps(text, most=MOST_STEPS)
    except TooManyError:
        return math.inf
