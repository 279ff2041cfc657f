"""Slurm's commands: one that does not end holds nobody up."""

import contextlib
import os
from pathlib import Path
import signal

import pytest

from tests.worker.attempt import wait_for
from worker.engines.slurm import commands
from worker.engines.slurm.commands import Commands, NoAnswer


def test_a_command_whose_output_others_keep_open_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heir, program = tmp_path / "heir", tmp_path / "squeue"
    program.write_text(
        f"#!/bin/sh\nsetsid sh -c 'echo $$ > {heir}.new; mv {heir}.new {heir}; exec sleep 300' &\nwait\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(commands, "_KILL_S", 0.2)
    try:
        with pytest.raises(NoAnswer, match="squeue did not answer within 2 s"):
            Commands({"PATH": f"{tmp_path}:{os.environ['PATH']}"})._ask(["squeue"], seconds=2.0)  # pyright: ignore[reportPrivateUsage] others wait for 30 s
        wait_for(heir.exists, "the process that has the output")
        os.kill(int(heir.read_text()), 0)  # it lives: nobody has waited for it
    finally:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int(heir.read_text()), signal.SIGKILL)
