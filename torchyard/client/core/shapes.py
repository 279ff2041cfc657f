"""What a job and its files show of their views, with either client."""

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
        """What was measured when it was saved."""
        return self.view.metrics


class ArtifactShape(ABC):
    """A file that a job left in its folder `artifacts`, or a kept one of its working folder."""

    @property
    @abstractmethod
    def view(self) -> ArtifactView: ...

    @property
    def path(self) -> str:
        """The path of the file below that folder."""
        return self.view.path

    @property
    def size(self) -> int:
        """In bytes."""
        return self.view.size


class JobShape(ABC):
    """One job of a server. `view` is what the server last said of it.

    Every method raises TorchyardError, as the client's do.
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
        """As the server last said. `refresh` and `wait` ask again."""
        return self.view.state
