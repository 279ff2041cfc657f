"""The variables of a program that a user starts beside a rank: those of the rank, with the job's own Python on PATH."""

from collections.abc import Mapping
import json
import os
from pathlib import Path
import socket
import sys
import time

from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.host import unix_sockets
from torchyard.host.untrusted import read_tail

_ACTIVATED = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables of an environment whose programs are on PATH."""
_WAIT_S, _POLL_S = 30.0, 0.05
"""How long to wait for a rank that has not come up. It starts within seconds."""
_MOST_BYTES = 1 << 21
"""Of the variables of a rank: as many as a program can get."""
_SECRETS_S = 60.0
"""How long the supervisor may take to answer."""


def of_rank(run: RunDir, rank: int) -> dict[str, str]:
    """Returns the variables with which a rank was started as a program, with its secrets. Raises OSError.

    Waits for one that has not come up. The job may have forged them: it is the user's own.
    """
    deadline = time.monotonic() + _WAIT_S
    while not (content := read_tail(run.variables(rank), _MOST_BYTES)):
        if time.monotonic() > deadline:
            raise ProcessLookupError(f"rank {rank} has not been started yet")
        time.sleep(_POLL_S)
    parts = (part.partition("=") for part in os.fsdecode(content).split("\0"))
    found = {name: value for name, _, value in parts if name}
    secrets = found.pop(Env.SECRETS, None)
    return with_python(found if secrets is None else {**found, **_ask(Path(secrets))})


def with_python(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the programs of this Python on PATH, unless another environment is activated."""
    own, path = str(Path(sys.executable).parent), variables.get("PATH", os.defpath)
    if own in path.split(os.pathsep) or any(name in variables for name in _ACTIVATED):
        return dict(variables)
    return {**variables, "PATH": f"{own}{os.pathsep}{path}"}


def _ask(path: Path) -> dict[str, str]:
    """Returns the secrets that the supervisor gives to processes of the attempt. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, unix_sockets.address_of(path) as address:
        connection.settimeout(_SECRETS_S)
        connection.connect(address)
        content = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return json.loads(content)
