"""The client and the command line on a system that is not Linux."""

from pathlib import Path
import subprocess
import sys

from tests.torchyard.client.answers import JOB, job
from tests.torchyard.client.fake_server import TOKEN, serving

ROOT = Path(__file__).parents[2]
PROGRAM = """
import importlib, os, pkgutil, sys
from tests.without_linux import hide
hide()
import torchyard, torchyard.cli
from torchyard.cli.commands import COMMANDS
from torchyard.cli.usage import load
for name in COMMANDS:
    load(name)
for package in ("client", "contract", "host", "run", "cli"):
    whole = importlib.import_module(f"torchyard.{package}")
    for module in pkgutil.walk_packages(whole.__path__, f"{whole.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
with torchyard.Client(sys.argv[1], sys.argv[2]) as client:
    print(client.get("job_1").name)
os.environ |= {"TORCHYARD_URL": sys.argv[1], "TORCHYARD_TOKEN": sys.argv[2]}
for arguments in (["show", "job_1"], ["up"]):
    sys.argv[1:] = arguments
    try:
        torchyard.cli.main()
    except SystemExit as end:
        print("exit", end.code)
"""


def test_the_client_works_and_the_service_says_what_it_needs() -> None:
    with serving() as server:
        server.on(JOB, job())
        server.on(f"{JOB}/checkpoints", {"data": [], "has_more": False, "next": None})
        program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{PROGRAM}"
        command = [sys.executable, "-P", "-c", program, server.url, TOKEN]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, *shown, last = done.stdout.splitlines()
    assert name == job()["name"] and any(name in line for line in shown)
    assert last == "exit 1"
    assert "needs Linux" in done.stderr and "torchyard login" in done.stderr
