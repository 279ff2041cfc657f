"""TensorBoard and MLflow with the series of `bench.series`, in an environment that is made once."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import uv

from bench.peers import curves
from bench.series import POINTS, value
from bench.service import wait_for

_PEERS = ("tensorboard==2.21.0", "mlflow==3.17.2")


@dataclass(frozen=True)
class Peer:
    name: str
    module: str
    """Its module of `curves.py`."""
    serve: tuple[str, ...]
    """Its arguments, with `{folder}` and `{port}`."""
    plot: str
    """Selects the plot's area in its page."""


SHOWN_BESIDE = (
    Peer(
        "TensorBoard, samples 1,000 of them",
        "tensorboard",
        ("tensorboard.main", "--logdir", "{folder}", "--port", "{port}"),
        "line-chart",
    ),
    Peer(
        "MLflow, samples 320 of them",
        "mlflow",
        (
            "mlflow",
            "server",
            "--backend-store-uri",
            "sqlite:///{folder}/mlflow.db",
            "--workers",
            "1",
            "--port",
            "{port}",
        ),
        ".js-plotly-plot",
    ),
)


@contextmanager
def shown(peer: Peer, folder: Path) -> Generator[dict[str, str]]:
    """Runs the peer with the series in its store. Yields what the browser opens."""
    folder.mkdir()
    python = _environment() / "bin" / "python"
    values = "".join(f"{value(step)!r}\n" for step in range(POINTS))
    writer = [python, curves.__file__, peer.module, folder]
    said = subprocess.run(writer, input=values, stdout=subprocess.PIPE, text=True, check=True).stdout
    port = _free_port()
    arguments = [part.format(folder=folder, port=port) for part in peer.serve]
    log = (folder / "server.log").open("wb")
    with (
        log,
        subprocess.Popen(
            [python, "-m", *arguments], stdout=log, stderr=log, cwd=folder, start_new_session=True
        ) as process,
    ):
        try:
            wait_for(lambda: _answers(port), peer.module, pause=0.2)
            url = f"http://127.0.0.1:{port}{said.split()[-1]}"
            yield {"name": peer.name, "url": url, "plot": peer.plot, "login": ""}
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def _environment() -> Path:
    """Returns the environment of the peers, which is made once for these versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchyard-bench"
    made = cache / "-".join(sorted(_PEERS)).replace("==", "-")
    if not (made / "complete").exists():
        program = uv.find_uv_bin()
        subprocess.run([program, "venv", "--quiet", "--clear", "--python", sys.executable, made], check=True)
        subprocess.run([program, "pip", "install", "--quiet", "--python", made / "bin" / "python", *_PEERS], check=True)
        (made / "complete").touch()
    return made


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            return answer.status == 200
    except OSError:
        return False
