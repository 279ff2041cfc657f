"""A process of the host that writes into the store of another job's torchrun runs no code there."""

import base64
import os
from pathlib import Path
import pickle

import pytest
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from tests.worker.attempt import Attempt
from torchyard.contract.states import EndReason

RENDEZVOUS = "torch.rendezvous.none"
"""What torchrun's dynamic rendezvous decodes and unpickles, also when it ends."""
AT_THE_END = "none/torchelastic/agent/terminal_state/last_member"
"""What an agent waits for when it ends."""
JOINS = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
"""
WAITS = """
import os, pathlib, time
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
table = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
links = [os.readlink(file) for file in pathlib.Path(f"/proc/{os.getppid()}/fd").iterdir()]
ports = [str(int(row[1].split(":")[1], 16)) for row in table if row[3] == "0A" and f"socket:[{row[9]}]" in links]
(run / f"ports-{os.environ['RANK']}.new").write_text(" ".join(ports))
(run / f"ports-{os.environ['RANK']}.new").rename(run / f"ports-{os.environ['RANK']}")
while not (run / "written").exists(): time.sleep(0.01)
print("done", flush=True)
"""


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize(
    ("attempt", "joins"),
    [
        *(pytest.param(way, JOINS, marks=pytest.mark.thorough, id=f"{way}-group") for way in ("cold", "agent")),
        pytest.param("agent", "", id="agent"),  # what torchrun itself stores: its ranks need not import torch
    ],
    indirect=["attempt"],
)
def test_pickles_in_the_stores_of_torchrun_are_not_run(attempt: Attempt, joins: str) -> None:
    attempt.start_job(joins + WAITS)
    for rank in (0, 1):
        attempt.wait_for_file(f"ports-{rank}")
    ports = [int(port) for port in (attempt.run.job / "ports-0").read_text().split()]
    executed = attempt.run.job / "executed"
    hostile = pickle.dumps(Payload(executed))
    stores = [TCPStore("127.0.0.1", port, is_master=False) for port in ports]
    assert any(store.list_keys() for store in stores)
    for store in stores:
        for key in (*store.list_keys(), AT_THE_END):
            store.set(key, hostile)  # pyright: ignore[reportArgumentType] it takes bytes too
        store.set(RENDEZVOUS, base64.b64encode(hostile).decode())
    (attempt.run.job / "written").touch()
    report = attempt.report()
    assert not executed.exists()
    assert report.reason is EndReason.COMPLETED, report
    assert [attempt.log(f"rank-{rank}", "stdout") for rank in (0, 1)] == ["done\n"] * 2
