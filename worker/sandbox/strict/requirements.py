"""What a worker needs of the helper before it takes a job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
import sys

from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.errors import ConfigError
from worker.sandbox.strict import client
from worker.sandbox.strict.protocol import Capabilities


@dataclass(frozen=True, kw_only=True)
class HelperNeeds:
    """The helper's socket, and the settings of the worker that the helper must share."""

    helper: Path
    data_dir: Path
    readable: Sequence[Path] = ()
    writable: Sequence[Path] = ()
    environments: Sequence[Path] = ()


def strict_level(needs: HelperNeeds | None) -> IsolationReport:
    """Returns the level `strict`, with what it lacks. Raises ConfigError if the helper is missing or does not fit."""
    if needs is None:
        raise ConfigError("TORCHYARD_ISOLATION is strict, but no helper is set (TORCHYARD_HELPER)")
    try:
        status = client.status(needs.helper)
    except OSError as error:
        raise ConfigError(f"TORCHYARD_ISOLATION is strict, but {error.strerror or error}") from None
    for problem in _problems(status, needs):
        raise ConfigError(f"TORCHYARD_ISOLATION is strict, but {problem}")
    return IsolationReport(level="strict", own_mounts=True, own_pids=True, lacks=status.lacks)


def _problems(helper: Capabilities, needs: HelperNeeds) -> Iterator[str]:
    if Path(helper.data_dir) != needs.data_dir:
        yield f"the helper serves the data directory {helper.data_dir}, not {needs.data_dir}"
    if helper.python != sys.executable:
        yield f"the helper runs {helper.python}, the worker {sys.executable}: start both with the same Python"
    for path in needs.readable:
        if str(path.resolve()) not in helper.readable:
            yield f"the helper does not allow {path}: give it --allow-path {path}"
    for path in needs.environments:
        if str(path) not in helper.environments:
            yield f"the helper does not offer the environments in {path}: give it --environments {path}"
    for path in needs.writable:
        if str(path.resolve()) not in helper.writable:
            yield f"the helper does not allow jobs to write {path}: give it --allow-path {path}:rw"
