"""What `import torchyard` offers, and what it loads."""

import importlib.metadata
import subprocess
import sys

from tests.approved import Approved
import torchyard
from torchyard.client.handles import Job
from torchyard.contract import errors


def test_the_package_has_its_version_its_errors_and_the_handle_of_a_job() -> None:
    assert torchyard.__version__ == importlib.metadata.version("torchyard")
    assert (torchyard.TorchyardError, torchyard.NotFound) == (errors.TorchyardError, errors.NotFound)
    assert torchyard.Job is Job
    assert {*torchyard.__all__} <= {*dir(torchyard)}


def test_what_is_not_used_is_not_loaded() -> None:
    program = """
import sys, torchyard
assert not {name for name in sys.modules if name.startswith(("torchyard.", "importlib.metadata"))}
from torchyard import TorchyardError, NotFound
assert not {"pydantic", "httpx2"} & {*sys.modules}
from torchyard import Job
assert not {"torch", "asyncio", "fastapi", "store"} & {*sys.modules}
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_model_needs_packages_which_are_named(approved: Approved) -> None:
    program = """
import sys
sys.modules["torch"] = None
import torchyard
try:
    torchyard.load("best.pt")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == approved("output"), done.stderr
