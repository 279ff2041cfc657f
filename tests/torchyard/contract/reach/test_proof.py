from dataclasses import asdict, dataclass, replace

import pytest

from torchyard.contract.reach.proof import Side, new_nonce, prove, proves

SECRET = bytes(32)


@dataclass(frozen=True)
class Parts:
    side: Side = "client"
    reach: str = "rch_1"
    meeting: int = 1
    service_nonce: str = "a" * 64
    end_nonce: str = "b" * 64


def test_a_proof_is_good_for_what_it_was_made_for() -> None:
    parts = Parts(service_nonce=new_nonce(), end_nonce=new_nonce())
    assert proves(prove(SECRET, **asdict(parts)), SECRET, **asdict(parts))


@pytest.mark.parametrize(
    "other",
    [
        Parts(side="service"),
        Parts(side="worker"),
        Parts(reach="rch_11"),
        Parts(meeting=2),
        Parts(service_nonce="c" * 64),
        Parts(end_nonce="c" * 64),
        Parts(service_nonce="b" * 64, end_nonce="a" * 64),
    ],
)
def test_a_proof_is_good_for_nothing_else(other: Parts) -> None:
    assert not proves(prove(SECRET, **asdict(Parts())), SECRET, **asdict(other))


def test_a_proof_with_another_secret_is_none() -> None:
    assert not proves(prove(b"x" * 32, **asdict(Parts())), SECRET, **asdict(Parts()))


@pytest.mark.parametrize("nonce", ["", "a", "a" * 63, "A" * 64, "a" * 10_000, "ä" * 64])
def test_nonces_of_another_form_prove_nothing(nonce: str) -> None:
    parts = replace(Parts(), end_nonce=nonce)
    assert not proves(prove(SECRET, **asdict(parts)), SECRET, **asdict(parts))
    assert not proves(nonce, SECRET, **asdict(Parts()))
