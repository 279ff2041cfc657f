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
    predict, train = blocks(PAGE, "python")
    (tmp_path / "train.py").write_text(train)
    make_up, log_in, *steps, detach, pause, cancel, retry = blocks(PAGE, "sh")
    said = run_blocks(
        [
            log_in.replace("http://127.0.0.1:8000", shared_service.server["url"]),
            f"cp {tmp_path / 'train.py'} .",
            *steps,
            f"python - <<'END'\n{predict}END",
            *(detach, _awaits("epoch 1 ")),
            *(pause, cancel, "torchyard wait long || true"),
            retry.replace("torchyard cancel", f"{_awaits('continues after epoch')}\ntorchyard cancel"),
        ],
        tmp_path / "clone",
        environment_in(tmp_path),
    )
    assert make_up == "make up\n"
    assert "0      1.0000       zero.png" in said
    assert (tmp_path / "circle" / "last.pt").exists()


def _awaits(line: str) -> str:
    """Returns a command that ends when the program has printed the line."""
    return f"(torchyard logs long --follow || true) | grep --max-count 1 '{line}'"
