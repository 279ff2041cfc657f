"""Brings the best checkpoint of earlier attempts to a recipe, which evaluates it again at its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import logging
from typing import Annotated, Any

from store.worker.records import BlobStore, CheckpointFacts, order_key
from torchyard.contract.attempts.rundir import INDEX_FILE, STATE_FILE, RunDir, is_in_parts
from torchyard.contract.errors import NotFound
from torchyard.contract.spec.spec import CheckpointPolicy, RecipeSpec, Spec
from torchyard.contract.wire.codec import Record, between
from torchyard.host import disk
from worker.host.untrusted import remove_checked

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BestSoFar(Record):
    """What the program gets of that checkpoint."""

    name: str
    attempt: Annotated[int, between(0, 2**31 - 1)]
    """The attempt that saved it."""
    step: Annotated[int, between(0, 2**63 - 1)]
    metrics: dict[str, Any]
    folder: str | None
    """The folder with its state; None if it could not be brought."""


@dataclass(frozen=True)
class BestBringer:
    """Brings it into the run directory. `check` is called again and again, and ends a long copy by raising.

    `with_files` reads the files of one that is without them.
    """

    run: RunDir
    blobs: BlobStore
    check: Callable[[], None]
    with_files: Callable[[CheckpointFacts], CheckpointFacts] = lambda checkpoint: checkpoint

    def bring(
        self, spec: Spec, checkpoints: Sequence[CheckpointFacts], *, resumed: CheckpointFacts | None
    ) -> BestSoFar | None:
        """Returns the best of `checkpoints`; None if there is none, or the job does not measure it again.

        Copies its state unless the job resumes from it. A copy that fails keeps no attempt from starting.
        """
        if not isinstance(spec, RecipeSpec) or spec.mode != "train" or not spec.config.evaluation.remeasure_best:
            return None
        best = _best_of(checkpoints, spec.checkpoint)
        if best is None:
            return None
        here = resumed is not None and best.id == resumed.id
        folder = self.run.resume if here else self.run.best if self._copy(best) else None
        return BestSoFar(
            name=best.name,
            attempt=best.attempt,
            step=best.step,
            metrics=dict(best.metrics),
            folder=None if folder is None else str(folder),
        )

    def _copy(self, best: CheckpointFacts) -> bool:
        folder, best = self.run.best, self.with_files(best)
        remove_checked(self.run.root, *folder.relative_to(self.run.root).parts, check=self.check)
        try:
            in_parts = is_in_parts(file["path"] for file in best.files)
            files = [file for file in best.files if _is_part(file["path"])] if in_parts else [best.file(STATE_FILE)]
            disk.require_free_space(folder.parent, sum(file["size"] for file in files))
            folder.mkdir()
            return all(self.blobs.copy_out(file["sha256"], folder / file["path"], check=self.check) for file in files)
        except (OSError, NotFound) as error:
            logger.warning("checkpoint %s was not re-evaluated: %s", best.id, error)
            return False


def _is_part(path: str) -> bool:
    return "/" not in path and (path == INDEX_FILE or path.endswith(".safetensors"))


def _best_of(checkpoints: Sequence[CheckpointFacts], policy: CheckpointPolicy) -> CheckpointFacts | None:
    """Returns the one that `best` names: the earliest of equal ones."""
    sign = 1.0 if policy.mode == "min" else -1.0
    values = {item.id: sign * item.monitored for item in checkpoints if item.monitored is not None}
    measured = [item for item in checkpoints if item.id in values and not item.damaged]
    return min(measured, key=lambda item: (values[item.id], *order_key(item)), default=None)
