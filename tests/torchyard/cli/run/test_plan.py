"""What `torchyard run` says of the program before it sends anything."""

from pathlib import Path
from typing import Any

import pytest

from torchyard.cli.run.program import Program
from torchyard.cli.run.spec import plan
from torchyard.client.packing.bundle import pack
from torchyard.contract.spec.spec import ScriptSpec, parse_spec


@pytest.mark.parametrize(
    ("config", "key", "value", "said"),
    [
        ({"requirements": "needs.txt"}, "command", "trl", "trl comes from needs.txt or the worker's environment."),
        (
            {"requirements": "a.txt"},
            "module",
            "zoo.train",
            "zoo.train comes from a.txt or the worker's environment.",
        ),
        ({"python": "mine"}, "command", "trl", "trl comes from the environment mine."),
        ({}, "module", "zoo.do", "zoo.do comes from the worker's environment."),
        ({}, "command", "sh", None),
    ],
)
def test_a_program_that_is_not_in_the_folder_has_the_environment_from_which_it_comes(
    tmp_path: Path, config: dict[str, Any], key: str, value: str, said: str | None
) -> None:
    (tmp_path / "needs.txt").touch()
    (tmp_path / "a.txt").touch()
    bundle = pack(tmp_path)
    spec = parse_spec({"trainer": "script", "config": {"code": bundle.url, key: value, **config}})
    assert isinstance(spec, ScriptSpec)
    lines = plan(spec, Program(key, value, (), None), bundle, server="here")
    assert [line for line in lines if " comes from " in line] == ([] if said is None else [said])
