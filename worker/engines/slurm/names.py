"""The name of an attempt's job in Slurm. It is the key: Slurm may give an id to another job after it lost its state."""

from dataclasses import dataclass
import hashlib
import re

from worker.host.attempt_key import AttemptKey

_PREFIX = "ty"
_NAME = re.compile(rf"{_PREFIX}-([0-9a-f]{{12}})-([0-9a-f]{{32}})-([1-9][0-9]{{0,8}})-([0-9]{{1,19}})")


@dataclass(frozen=True)
class Names:
    """The names that one service gives to its jobs in one partition."""

    service_id: str
    partition: str

    def of(self, key: AttemptKey, *, claimed_at: int) -> str:
        """Returns the name. Another claim of the same attempt has another one. Raises ValueError for a strange key."""
        job = key.job_id.removeprefix("job_")
        name = f"{_PREFIX}-{self._mark}-{job}-{key.number}-{claimed_at}"
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{key} cannot be named in Slurm")
        return name

    def key_of(self, name: str) -> AttemptKey | None:
        """Returns whose name it is, or None if this service has not given it for this partition."""
        match = _NAME.fullmatch(name)
        if match is None or match[1] != self._mark:
            return None
        return AttemptKey(f"job_{match[2]}", int(match[3]))

    @property
    def _mark(self) -> str:
        return hashlib.sha256(f"{self.service_id}\0{self.partition}".encode()).hexdigest()[:12]
