"""The program itself: it waits for its database, and a signal ends it with exit code 0."""

import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from tests.forked import ForkedProgram
from tests.worker.attempt import wait_for


@pytest.mark.thorough
def test_an_idle_controller_has_loaded_neither_optuna_nor_numpy() -> None:
    code = "import sys, controller.duties; print(*{'optuna', 'numpy', 'croniter', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_controller_without_a_database_says_so_once_and_a_signal_ends_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    log = tmp_path / "controller.log"
    env = os.environ | {
        "TORCHYARD_DATA_DIR": str(tmp_path / "data"),
        "TORCHYARD_DATABASE_URL": f"postgresql://nobody@/torchyard?host={tmp_path}",
    }
    log.touch()
    controller = ForkedProgram("controller", env=env, cwd=tmp_path, log=log)
    try:
        wait_for(lambda: "trying again" in log.read_text(), what="the controller looks for its database")
        controller.send_signal(number)
        assert controller.wait(60) == 0
    finally:
        controller.kill()
    assert log.read_text().count("trying again") == 1
    assert "Traceback" not in log.read_text()
