"""The commands and programs of docs/rest-and-python.md, on a real service."""

import contextlib
import io
from pathlib import Path

import pytest

from tests.e2e.documented import ROOT, blocks, environment_in, run_blocks
from tests.e2e.service import Service

PAGE = (ROOT / "docs" / "rest-and-python.md").read_text()
PROGRAM = "import os, sys\nassert (sys.argv[1:], os.environ['STAGE']) == (['--lr', '0.1'], 'test')\n"


@pytest.mark.thorough
@pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")
def test_what_the_page_shows_does_what_it_says(
    tmp_path: Path, shared_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {"TORCHYARD_URL": shared_service.server["url"], "TORCHYARD_TOKEN": shared_service.server["token"]}
    (tmp_path / "train.py").write_text(PROGRAM)
    by_curl = run_blocks(blocks(PAGE, "sh"), tmp_path, {**environment_in(tmp_path), **server})
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    names: dict[str, object] = {}
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(io.StringIO()) as said:
        for block in blocks(PAGE, "python"):
            exec(compile(block, "docs/rest-and-python.md", "exec"), names)
    assert by_curl.endswith("304\n")
    for shown in ("succeeded best.pt", "ok admin", "invalid_spec priority must be at most 100\nnot_found", "True"):
        assert shown in said.getvalue()
    assert {"best.pt", "resumed.pt", "epoch-1.pt"} <= {path.name for path in tmp_path.iterdir()}
