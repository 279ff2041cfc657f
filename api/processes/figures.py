"""The figures of several API processes of a host: whichever is asked shows them for all."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
import os
from pathlib import Path
import tempfile

from prometheus_client import CollectorRegistry, ProcessCollector, values
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable in which prometheus_client looks for the folder of the processes' figures."""


@contextmanager
def shared() -> Generator[None]:
    """The processes that are forked in the block keep their figures in one folder. They outlive their process."""
    with tempfile.TemporaryDirectory(prefix="torchyard-figures-", ignore_cleanup_errors=True) as folder:
        os.environ[_FOLDER] = folder
        values.ValueClass = values.MultiProcessValue()
        yield


def registry_of_process(shown: CollectorRegistry) -> CollectorRegistry:
    """Returns where this process registers its figures. `shown` has them, those of the others, and what each uses."""
    folder = os.environ.get(_FOLDER)
    if folder is None:
        ProcessCollector(registry=shown)
        return shown
    MultiProcessCollector(shown, path=folder)
    shown.register(_Processes(Path(folder)))
    return CollectorRegistry()


class _Processes(Collector):
    """What each process uses, as `ProcessCollector` tells it, with its pid as the label `process`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        metrics: dict[str, Metric] = {}
        for pid in {path.stem.rpartition("_")[2] for path in self._folder.iterdir()}:
            for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():
                family = metrics.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    family.add_sample(sample.name, {"process": pid}, sample.value)
        return metrics.values()
