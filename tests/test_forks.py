"""The server from which tests fork processes."""

import os
from pathlib import Path
import subprocess
import sys

PROGRAM = """
import os
from tests import forks

def told(pipe):
    pipe.send((os.getppid(), os.getpid()))

def ask():
    ours, theirs = forks.context.Pipe(duplex=False)
    process = forks.context.Process(target=told, args=(theirs,))
    process.start()
    server, own = ours.recv()
    process.join()
    assert own != os.getpid()
    assert process.exitcode == 0
    return server

if __name__ == "__main__":
    forks.preload("json")
    forks.start_server(tests=0)
    servers = [ask()]
    for _ in range(2):
        ours, theirs = os.pipe()
        if not (child := os.fork()):
            os.write(theirs, repr(ask()).encode())
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        servers.append(eval(os.read(ours, 100)))
    print(*set(servers))
    forks.end_server()
"""


def test_forked_processes_share_the_server_that_their_parent_has_started(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 1
