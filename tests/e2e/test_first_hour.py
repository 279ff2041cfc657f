"""The commands of docs/first-hour.md, as they stand there but for the port."""

from pathlib import Path
import sys

import pytest

from tests.e2e.documented import ROOT, blocks, environment_in, run_blocks
from tests.e2e.service import Service

PAGE = (ROOT / "docs" / "first-hour.md").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")
def test_the_first_hour_goes_as_documented(tmp_path: Path, shared_service: Service) -> None:
    """Runs them on the shared service of tests/e2e, which was started by the command of `make up`."""
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / ".venv").symlink_to(sys.prefix)
    (tmp_path / "clone" / ".torchyard").symlink_to(shared_service.data)
    in_python, train = blocks(PAGE, "python")
    (tmp_path / "train.py").write_text(train)
    make_up, *steps = [_here(block, shared_service) for block in blocks(PAGE, "sh")]
    steps[1] = f"cp {tmp_path / 'train.py'} .\n{steps[1]}"
    steps[-1] = f"torchyard wait long || true\n{steps[-1]}\ntorchyard wait long || true\ntorchyard logs long"
    said = run_blocks([*steps, f"python - <<'END'\n{in_python}END"], tmp_path / "clone", environment_in(tmp_path))
    assert make_up == "make up\n"
    assert "0      1.0000       zero.png" in said and said.endswith("\n0\n")
    assert "continues after epoch" in said.rpartition("running, stopping")[2]
    assert (tmp_path / "circle" / "last.pt").exists()


def _here(block: str, service: Service) -> str:
    return block.replace("http://127.0.0.1:8000", service.server["url"])
