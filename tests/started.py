"""Runs a program of the service to its end: as a fork of the fork server, which has imported what programs share."""

from collections.abc import Mapping
import os
from pathlib import Path
import runpy
import subprocess
import sys
import tempfile
import traceback
from typing import NoReturn

from tests import forks

forks.preload("controller.duties", "controller.loop", "store.backup.make", "worker.daemon", "worker.pools")


def run_program(
    program: str, *arguments: str, environment: Mapping[str, str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Does what `python -P -m program` does, without the imports. Returns what it wrote and its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        output = {number: str(Path(folder, name)) for number, name in ((1, "stdout"), (2, "stderr"))}
        process = forks.context.Process(
            target=_run, args=(program, arguments, {**environment}, str(cwd), output), name=program
        )
        process.start()
        process.join(120)
        process.kill()
        process.join()
        stdout, stderr = (Path(path).read_text() for path in output.values())
    assert process.exitcode is not None
    return subprocess.CompletedProcess([program, *arguments], process.exitcode, stdout, stderr)


def _run(
    program: str, arguments: tuple[str, ...], environment: dict[str, str], cwd: str, output: dict[int, str]
) -> NoReturn:
    """Runs the program in this process, and ends it."""
    code = 70
    try:
        for number, path in output.items():
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), number)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001 - the test reads it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
