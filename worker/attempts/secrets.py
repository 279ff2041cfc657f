"""The secrets of one attempt: their values for its ranks, which no row that it writes may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from store.db.database import Session
from store.db.tables import Job
from store.facts.telemetry import MetricPoint
from store.rows import secrets
from store.rows.attempts import Batch
from store.rows.checkpoints import NewCheckpoint
from store.secret_keys import SecretKeys
from torchyard.contract.errors import ConfigError
from worker.host.mask import Mask


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


def masked(batch: Batch, mask: Mask) -> Batch:
    """Returns the batch with masked text. Whoever copies files leaves those out that have a secret in their path."""
    if not mask:
        return batch
    return replace(
        batch,
        lines=[replace(new, lines=[mask.text(line) for line in new.lines]) for new in batch.lines],
        events=[replace(event, data=_masked(event.data, mask)) for event in batch.events],
        card=_masked(batch.card, mask),
        points=_masked_points(batch.points, mask),
        curves=_masked_points(batch.curves, mask),
        checkpoints=[_masked_checkpoint(new, mask) for new in batch.checkpoints],
    )


def _masked_points(points: list[MetricPoint], mask: Mask) -> list[MetricPoint]:
    keys = {key: mask.text(key) for key in {point.key for point in points}}
    if all(key == masked for key, masked in keys.items()):
        return points
    return [replace(point, key=keys[point.key]) for point in points]


def _masked_checkpoint(new: NewCheckpoint, mask: Mask) -> NewCheckpoint:
    manifest = replace(new.manifest, metrics=_masked(new.manifest.metrics, mask), card=_masked(new.manifest.card, mask))
    return replace(new, manifest=manifest)


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, dict):
        return {mask.text(key): _masked(item, mask) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, mask) for item in value]
    return value
