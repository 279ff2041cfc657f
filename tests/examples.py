"""The programs of examples/, held at a step until they are told to stop, so that no test depends on their speed."""

import json
from pathlib import Path

from torchyard.contract.attempts.rundir import RunDir

FOLDER = Path(__file__).parents[1] / "examples"
HELD_AT = 30
HELD = f"""
import os, runpy, sys, time
from torchyard.run.context import Run

log = Run.log

def held(run, values, *, step):
    log(run, values, step=step)
    while os.environ["TORCHYARD_ATTEMPT"] == "1" and step >= {HELD_AT} and not run.stop_requested:
        time.sleep(0.01)

Run.log = held
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that runs the one in its arguments. In the first attempt each rank waits at a step until it is to stop."""


def losses(run: RunDir) -> dict[int, float]:
    """Returns what an attempt has reported so far, by step."""
    if not run.events.exists():
        return {}
    whole = run.events.read_bytes().rpartition(b"\n")[0].splitlines()
    lines = [json.loads(line) for line in whole]
    return {line["step"]: line["values"]["train/loss"] for line in lines if "train/loss" in line.get("values", {})}
