"""A job and its checkpoints as objects: what a script that runs many jobs holds of each."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.contract.job import JobState
from torchyard.contract.views import ArtifactView, CheckpointView, JobView, LogLine, LogMatch, SeriesView

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.core import Update


@dataclass(frozen=True)
class Series:
    """The points of one metric by rising step. `source` is `run`, or `tensorboard` for those of event files."""

    key: str
    steps: Sequence[int]
    values: Sequence[float]
    times: Sequence[datetime]
    source: str = "run"

    @classmethod
    def of(cls, view: SeriesView) -> Series:
        """Returns a series of an answer."""
        points = view.points
        steps, values = [point.step for point in points], [point.value for point in points]
        return cls(view.key, steps, values, [point.time for point in points], view.source)


class Metrics(Mapping[str, Series]):
    """The series of a job, by key."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._series = {item.key: item for item in series}

    def __getitem__(self, key: str) -> Series:
        return self._series[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return f"Metrics({', '.join(f'{key}: {len(item.steps)} points' for key, item in self.items())})"

    def frame(self) -> Any:
        """Returns a pandas.DataFrame: a row for each step, a column for each key, NaN where a key has no point.

        Raises ImportError where pandas is not installed.
        """
        import pandas as pd  # pyright: ignore[reportMissingImports, reportMissingTypeStubs] - not a dependency

        columns = {key: pd.Series(item.values, index=item.steps, dtype="float64") for key, item in self.items()}
        frame = pd.DataFrame(columns).sort_index()
        frame.index.name = "step"
        return frame


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a job."""

    view: CheckpointView
    _client: Client
    _job_id: str

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def step(self) -> int:
        return self.view.step

    @property
    def epoch(self) -> int | None:
        return self.view.epoch

    @property
    def metrics(self) -> Mapping[str, float]:
        """What was measured when it was saved."""
        return self.view.metrics

    def download(self, to: str | Path = ".", *, file: str | None = None) -> Path:
        """Fetches its `state.pt`, or its `file`, and returns the path, as `Client.download` does."""
        return self._client.download(self._job_id, self.view.id, file=file, to=to)


@dataclass(frozen=True)
class Artifact:
    """A file that a job left in its folder `artifacts`."""

    view: ArtifactView
    _client: Client
    _job_id: str

    @property
    def path(self) -> str:
        """The path of the file below `artifacts`."""
        return self.view.path

    @property
    def size(self) -> int:
        """In bytes."""
        return self.view.size

    def download(self, to: str | Path = ".") -> Path:
        """Fetches it, and returns the path, as `Client.download_artifact` does."""
        return self._client.download_artifact(self._job_id, self.path, to=to)


class Job:
    """One job of a server. `view` is what the server last said of it.

    Every method raises TorchyardError, as the client's do.
    """

    def __init__(self, client: Client, view: JobView) -> None:
        self.view = view
        self._client = client

    @classmethod
    def find(cls, client: Client, ref: str) -> Job:
        """Returns the job with the id `ref`, else the newest job of that name. Raises NotFound."""
        return cls(client, client.find(ref))

    def __repr__(self) -> str:
        return f"Job({self.id}, {self.name}, {self.state})"

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def state(self) -> JobState:
        """As the server last said. `refresh` and `wait` ask again."""
        return self.view.state

    def refresh(self) -> JobView:
        """Asks the server for the job, and returns it."""
        self.view = self._client.get(self.id)
        return self.view

    def wait(self, *, timeout: float | None = None) -> JobView:
        """Waits until the job has ended, however it ends, and returns it. `timeout` is in seconds.

        Raises TimeoutError.
        """
        self.view = self._client.wait(self.id, timeout=timeout)
        return self.view

    def follow(self, *, logs: bool = True, metrics: bool = True) -> Generator[Update]:
        """Yields the job's events, metric points and lines of output, each once, until it has ended."""
        for update in self._client.follow(self.id, logs=logs, metrics=metrics):
            if isinstance(update, JobView):
                self.view = update
            yield update

    def logs(self, *, tail: int | None = None, rank: int | None = None) -> Generator[LogLine]:
        """Yields lines of output, oldest first: all, or the last `tail`."""
        return self._client.logs(self.id, tail=tail, rank=rank)

    def search_logs(
        self, pattern: str, *, regex: bool = False, case: bool = False, rank: int | None = None
    ) -> Generator[LogMatch]:
        """Yields the lines that contain `pattern`, oldest first, as `Client.search_logs` does."""
        return self._client.search_logs(self.id, pattern, regex=regex, case=case, rank=rank)

    def metrics(self, *keys: str, max_points: int | None = None) -> Metrics:
        """Returns the series with these keys, or all, each of at most `max_points`, or of the server's default."""
        found = self._client.metrics(self.id, keys=keys, max_points=max_points)
        return Metrics([Series.of(view) for view in found.data])

    def checkpoints(self) -> Generator[Checkpoint]:
        """Yields the checkpoints, newest first."""
        for view in self._client.checkpoints(self.id):
            yield Checkpoint(view, self._client, self.id)

    def checkpoint(self, ref: str) -> Checkpoint:
        """Returns one checkpoint: an id, `best`, `latest`, `epoch-N` or `step-N`. Raises NotFound."""
        return Checkpoint(self._client.checkpoint(self.id, ref), self._client, self.id)

    def artifacts(self, path: str | None = None) -> Generator[Artifact]:
        """Yields the files that the job left; with `path`, that file or those in that folder."""
        for view in self._client.artifacts(self.id, path=path):
            yield Artifact(view, self._client, self.id)

    def best_checkpoint(self) -> Checkpoint:
        """Returns the best checkpoint, by `checkpoint.monitor` of the spec. Raises NotFound."""
        return self.checkpoint("best")

    def latest_checkpoint(self) -> Checkpoint:
        """Returns the newest checkpoint. Raises NotFound."""
        return self.checkpoint("latest")

    def cancel(self, *, now: bool = False) -> JobView:
        """Asks the job to stop, as `Client.cancel` does. Raises Conflict if it has ended."""
        self.view = self._client.cancel(self.id, now=now)
        return self.view

    def pause(self) -> JobView:
        """Asks the job to save a checkpoint and release its devices. Raises Conflict if it has ended."""
        self.view = self._client.pause(self.id)
        return self.view

    def resume(self) -> JobView:
        """Lets a paused job continue from its newest checkpoint. Raises Conflict if it has ended."""
        self.view = self._client.resume(self.id)
        return self.view
