"""Stores one series where a peer of the page reads it: `python curves.py tensorboard|mlflow FOLDER`.

Reads the values from standard input, one a line; their steps are 0, 1, 2 …. Prints the path of the page that shows the
curve. Runs in the environment of the peers (`bench.page`), which lacks Torchyard.
"""

# pyright: reportMissingImports=false

from collections.abc import Sequence
from pathlib import Path
import sys

TAG, START_S, STEP_S = "train/loss-0", 1_700_000_000, 0.5
_BATCH = 1000
"""The most metrics that MLflow takes at once."""


def main() -> None:
    peer, folder = sys.argv[1:]
    values = [float(line) for line in sys.stdin]
    print({"tensorboard": _tensorboard, "mlflow": _mlflow}[peer](Path(folder), values))


def _tensorboard(folder: Path, values: Sequence[float]) -> str:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "run"))
    for step, value in enumerate(values):
        summary = Summary(value=[Summary.Value(tag=TAG, simple_value=value)])
        writer.add_event(Event(step=step, wall_time=START_S + step * STEP_S, summary=summary))
    writer.close()
    return "/#timeseries"


def _mlflow(folder: Path, values: Sequence[float]) -> str:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.create_experiment("bench", artifact_location=(folder / "artifacts").as_uri())
    run = client.create_run(experiment).info.run_id
    for first in range(0, len(values), _BATCH):
        batch = enumerate(values[first : first + _BATCH], first)
        found = [Metric(TAG, value, int((START_S + step * STEP_S) * 1000), step) for step, value in batch]
        client.log_batch(run, metrics=found)
    client.set_terminated(run)
    return f"/#/experiments/{experiment}/runs/{run}/model-metrics"


if __name__ == "__main__":
    main()
