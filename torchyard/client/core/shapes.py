"""The fields of a job, a checkpoint and an artifact, for both clients."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torchyard.contract.files.views import ArtifactView, CheckpointView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState


class CheckpointShape(ABC):
    """A checkpoint of a job."""

    @property
    @abstractmethod
    def view(self) -> CheckpointView: ...

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
        """The metrics that the checkpoint was saved with."""
        return self.view.metrics


class ArtifactShape(ABC):
    """A file of a job, from its folder `artifacts` or its working folder."""

    @property
    @abstractmethod
    def view(self) -> ArtifactView: ...

    @property
    def path(self) -> str:
        """The path in that folder."""
        return self.view.path

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.view.size


class JobShape(ABC):
    """A job of a service. `view` has all its fields as of the last answer.

    Its methods raise the errors of the client.
    """

    @property
    @abstractmethod
    def view(self) -> JobView: ...

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
        """The state as of the last answer. `refresh` and `wait` read it again."""
        return self.view.state
