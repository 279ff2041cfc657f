"""One node of an attempt over several: `python -P node.py RUN NODE [LISTENER]` supervises its part."""

from pathlib import Path
import socket
import sys

from torchyard.contract.attempts.rundir import RunDir
from worker.engines.local.supervisor.supervisor import supervise


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[3])) if len(sys.argv) > 3 else None
    supervise(RunDir(Path(sys.argv[1])).of_node(int(sys.argv[2])), {}, listener=listener)


if __name__ == "__main__":
    main()
