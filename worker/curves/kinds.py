"""The kinds of files that curves are read from, known by their names."""

from dataclasses import dataclass
import re

from worker.host.looks import Parts

METRICS = "metrics"
"""The folder of a run of MLflow that has a file for each metric."""
RUN = "meta.yaml"
"""The file beside that folder, which tells a run of MLflow."""
_DATABASE = "mlflow.db"
_RUN_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Kind:
    """`source`: that of the metrics, which begins the names of such files among the offsets of an attempt."""

    name: str
    source: str
    most: int
    """Files of this source that are read of one attempt."""
    files: str
    """What a message calls them."""
    is_database: bool = False
    """Whether it is read as a whole, and its offset is the number of a row; else it grows at its end."""


EVENTS = Kind("events", "tensorboard", 100, "event files of TensorBoard")
WANDB = Kind("wandb", "wandb", 100, "files of wandb")
LINES = Kind("lines", "mlflow", 300, "files of MLflow")
DATABASE = Kind("database", "mlflow", 300, "files of MLflow", is_database=True)
KINDS = {kind.name: kind for kind in (EVENTS, WANDB, LINES, DATABASE)}


def kind_of(parts: Parts) -> Kind:
    """Returns the kind of a file that `finding.find` has found."""
    return _named(parts[-1]) or LINES


def is_wanted(name: str) -> bool:
    """Returns whether a file of this name is one, or tells where some are."""
    return name == RUN or _named(name) is not None


def metric_of(parts: Parts) -> str:
    """Returns the metric that a file of MLflow is of: its path below the run's folder of metrics."""
    indexes = [index for index, name in enumerate(parts[:-1]) if name == METRICS]
    named = (index for index in indexes if index and _RUN_ID.fullmatch(parts[index - 1]))  # a metric may be `metrics/x`
    return "/".join(parts[next(named, indexes[0]) + 1 :])


def _named(name: str) -> Kind | None:
    if ".tfevents." in name:
        return EVENTS
    if name.startswith("run-") and name.endswith(".wandb"):
        return WANDB
    return DATABASE if name == _DATABASE else None
