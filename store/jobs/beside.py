"""The jobs of one batch that wait for each other."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from store.ids import new_id
from store.jobs.submission import Submission
from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.states import JobState


@dataclass(frozen=True, slots=True)
class Known:
    """A job that a spec names in `after`."""

    id: str
    name: str
    state: JobState
    trainer: str
    visibility: str


class Beside:
    """The jobs of a batch, by the names that its specs have for them."""

    def __init__(self, wanted: Mapping[int, Submission], *, atomic: bool = True) -> None:
        """`atomic`: all of them are stored, or none: only then they may wait for each other, and none for itself."""
        self._atomic = atomic
        self._wanted = {index: replace(each, job_id=new_id("job")) for index, each in wanted.items()}
        self._names = Counter(each.spec.name for each in self._wanted.values())
        self._indexes = {each.spec.name: index for index, each in self._wanted.items()}

    @property
    def ids(self) -> set[str]:
        """The ids that the jobs will have, if others may name them."""
        return {str(each.job_id) for each in self._wanted.values()}

    def with_id(self, index: int, wanted: Submission) -> Submission:
        """Returns the submission with its id, if it is one of these."""
        return self._wanted.get(index, wanted)

    def id_of(self, number: int, named: str) -> str | None:
        """Returns the id of the job that an item of the `after` of another one names; None if it is none of these.

        Raises InvalidSpec for a name that several have.
        """
        if named not in self._indexes:
            return None
        if not self._atomic:
            raise wrong(number, f"{named} is a job of the same batch: send the batch with `atomic`")
        if self._names[named] > 1:
            raise wrong(number, f"{self._names[named]} jobs of the batch have the name {named}")
        return self._wanted[self._indexes[named]].job_id

    def known(self) -> dict[str, Known]:
        """Returns what is known of the jobs, by their ids."""
        jobs: dict[str, Known] = {}
        for each in self._wanted.values():
            job_id, spec = str(each.job_id), each.spec
            visibility = spec.visibility or each.visibility
            jobs[job_id] = Known(job_id, spec.name, JobState.QUEUED, spec.trainer, visibility)
        return jobs


def wrong(number: int, message: str) -> InvalidSpec:
    """Returns the error of an item of `after`."""
    return InvalidSpec("the job spec is not valid", errors=(FieldError(f"after.{number}.job", message),))
