"""The secrets of one attempt: their values for its ranks, and the mask that keeps them out of the database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
import re
from typing import Any

from store.db.database import Session
from store.db.tables import Job
from store.rows import secrets
from store.rows.attempts import Batch
from store.secret_keys import SecretKeys
from torchyard.contract.errors import ConfigError
from torchyard.contract.records import ExitReport

MASK = "***"
_LEAST_CHARACTERS = 8
"""A shorter value is not masked: it would hide innocent text."""
_LEAST_PREFIX = 4
"""Characters of a value that are masked where a long line was cut."""
_CUT = re.compile(r" … \[\d+ bytes cut\]$")


@dataclass(frozen=True)
class AttemptSecrets:
    """`values`: by variable. `problem`: why some of them are missing; the attempt cannot start then."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    problem: str | None = None


def resolve(session: Session, keys: SecretKeys, job: Job) -> AttemptSecrets:
    """Decrypts the secrets that the job's spec names, as they are now."""
    wanted = {name: value["secret"] for name, value in job.spec.get("env", {}).items() if isinstance(value, dict)}
    rows = secrets.named(session, job.owner, set(wanted.values()))
    values: dict[str, str] = {}
    problems: list[str] = []
    for variable, name in wanted.items():
        row = rows.get(name)
        if row is None:
            problems.append(f"env.{variable}: {job.owner} has no secret {name} any more")
            continue
        try:
            values[variable] = keys.decrypt(row.value, key_id=row.key_id, owner=row.owner, name=name)
        except ConfigError as error:
            problems.append(f"env.{variable}: {error.message}")
    return AttemptSecrets(values, "; ".join(problems) or None)


class Mask:
    """Replaces values by `***` in what a job writes. A value of several lines is masked line by line, too."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in (value, *value.splitlines())}
        self._parts = sorted((part for part in parts if len(part) >= _LEAST_CHARACTERS), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._parts)))

    def batch(self, batch: Batch) -> Batch:
        """Returns the batch with masked lines, events and card."""
        if not self._parts:
            return batch
        lines = [replace(new, lines=[self.text(line) for line in new.lines]) for new in batch.lines]
        events = [replace(event, data=self._document(event.data)) for event in batch.events]
        return replace(batch, lines=lines, events=events, card=self._document(batch.card))

    def report(self, report: ExitReport) -> ExitReport:
        """Returns the report with a masked message and traceback."""
        if not self._parts:
            return report
        traceback = None if report.traceback is None else self.text(report.traceback)
        return replace(report, message=self.text(report.message), traceback=traceback)

    def text(self, text: str) -> str:
        masked = self._pattern.sub(MASK, text)
        cut = _CUT.search(masked)
        if cut is None:
            return masked
        head = masked[: cut.start()]
        for part in self._parts:
            for length in range(len(part) - 1, _LEAST_PREFIX - 1, -1):
                if head.endswith(part[:length]):
                    return head[:-length] + MASK + cut[0]
        return masked

    def _document(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._document(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._document(item) for item in value]
        return value
