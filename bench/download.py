"""A checkpoint of 1 GB over loopback, beside nginx with sendfile and the same file: `python -m bench.download`.

A real job saves the checkpoint. One client, in its own process, reads both answers and discards them. Nginx is started
if the system has it.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import shutil
import socket
import subprocess
import sys
import time

from bench import table
from bench.load import get
from bench.service import Service, scratch, script, up, wait_for
from bench.table import Row

REPEATS = 5
SIZE = 1_000_000_000
_SCRIPT = f"""
import torchyard

run = torchyard.init()
block = bytes(range(256)) * 4096
def write(file):
    for start in range(0, {SIZE}, len(block)):
        file.write(block[: {SIZE} - start])
run.save_checkpoint({{}}, epoch=1, step=1, files={{"state.pt": write}})
"""
_NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; {user} worker_processes 1;
events {{}}
http {{
    access_log off; sendfile on; tcp_nopush on;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder) as service:
        job_id, blob = _published(service, folder)
        request = get(f"/v1/jobs/{job_id}/checkpoints/latest/download", token=service.token)
        with _nginx(blob.parent, folder) as peer:
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(REPEATS):
                ours.append(_speed(service.address, request))
                if peer is not None:
                    theirs.append(_speed(peer, get(f"/{blob.name}")))
        yield Row(
            "a checkpoint of 1 GB",
            "MB/s",
            ours,
            peer="nginx" if theirs else "nginx is not installed",
            theirs=theirs,
            ratio_at_least=0.5,
        )


def _published(service: Service, folder: Path) -> tuple[str, Path]:
    """Returns the job and its checkpoint's file."""
    with service.client() as client:
        job_id = client.submit(script(folder / "code", _SCRIPT)).id
        wait_for(lambda: client.get(job_id).state.terminal, "the end of the job", pause=0.2)
        digest = client.jobs.checkpoint(job_id, "latest").sha256
    return job_id, service.data / "blobs" / digest[:2] / digest


@contextmanager
def _nginx(root: Path, folder: Path) -> Generator[tuple[str, int] | None]:
    """The address of an nginx that serves `root`; None if it is not installed."""
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if binary is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    user = "user root;" if os.getuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, user=user, port=port, root=root))
    with subprocess.Popen([binary, "-c", config, "-e", folder / "error.log"]) as process:
        try:
            wait_for(lambda: _listens(port), "nginx")
            yield "127.0.0.1", port
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _speed(address: tuple[str, int], request: bytes) -> float:
    """Returns the MB/s at which a client in another process reads one answer of SIZE bytes."""
    command = [sys.executable, "-m", "bench.download", address[0], str(address[1])]
    return float(subprocess.run(command, input=request, stdout=subprocess.PIPE, check=True).stdout)


def _read() -> None:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as connection:
        request = sys.stdin.buffer.read()
        buffer = bytearray(1 << 20)
        began = time.perf_counter()
        connection.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"the download was answered {head.decode('latin-1')}")
        left = SIZE
        while left:
            received = connection.recv_into(buffer)
            if not received:
                sys.exit("the answer was incomplete")
            left -= received
        print(SIZE / 1e6 / (time.perf_counter() - began))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _read()
    else:
        table.main(measure)
