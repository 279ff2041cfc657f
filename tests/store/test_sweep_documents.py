"""What is stored of a sweep is its JSON, however it is made."""

from typing import Any

import pytest

from store.sweeps.submit import document_of
from torchyard.contract.sweeps.spec import parse_sweep

SCRIPT = {"trainer": "script", "config": {"code": "file:///x", "args": []}}


@pytest.mark.parametrize(
    "sent",
    [
        {"method": "list", "points": [{"args.lr": 1e22, "args.x": None}, {"args.lr": [1, {"a": "ä"}], "args.x": True}]},
        {"parameters": {"args.lr": [0.1, 1], "args.n": "1..3"}, "max_parallel": 2},
        {"method": "tpe", "trials": 3, "monitor": "loss", "parameters": {"args.a": {"min": 0.1, "max": 2}}},
    ],
)
def test_the_document_of_a_sweep_is_its_json(sent: dict[str, Any]) -> None:
    sweep = parse_sweep({**sent, "job": SCRIPT})
    assert document_of(sweep) == sweep.model_dump(mode="json")
