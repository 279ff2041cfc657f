import pytest

from torchyard.contract.reach.orders import MOST_BYTES, Call, Order, Terminal


def test_an_order_is_the_same_after_its_way_as_json() -> None:
    order = Order(kind="program", argv=["bash", "-l"], rank=1, terminal=Terminal(rows=1, columns=1))
    call = Call(kind="start", reach="rch_0192f3a47b7c4f5e8a9b0c1d2e3f4a5b", order=order)
    assert Call.from_json(call.to_json()) == call


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "program"}, "argv: is missing"),
        ({"kind": "program", "argv": [""]}, "is empty"),
        ({"kind": "program", "argv": ["a\0b"]}, "NUL"),
        ({"kind": "program", "argv": ["x" * MOST_BYTES]}, f"at most {MOST_BYTES}"),
        ({"kind": "ports", "argv": ["ls"]}, "belong to a program"),
        ({"kind": "ssh"}, "authorized_key"),
        ({"kind": "ssh", "authorized_key": "ssh-ed25519 A\nssh-rsa B"}, "one line"),
        ({"kind": "program", "argv": ["ls"], "authorized_key": "ssh-ed25519 A"}, "authorized_key"),
        ({"kind": "root"}, "kind: must be one of"),
        ({"kind": "program", "terminal": {"rows": 0}}, "between 1 and"),
        ({"kind": "program", "terminal": {"kind": "../../etc"}}, "a name of a terminal"),
    ],
)
def test_an_order_that_does_not_fit_together_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Order.from_dict(wrong)
