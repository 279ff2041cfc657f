"""`python -P -m trainer.evaluate STATE_PT` evaluates a checkpoint's weights in one process.

Prints one line of JSON. Batches and CPU threads are those of the training, so that the same machine computes the same
metrics.
"""

import argparse
from collections.abc import Callable
import json
from pathlib import Path
import sys
from typing import Any

from torchyard.contract.errors import ConfigError, DataError, TorchyardError
from torchyard.contract.recipes import DistributedConfig
from torchyard.host.collector import paused

with paused():
    import torch

    from torchyard.models import checkpoint
    from torchyard.models.loading import check_size
    from torchyard.models.placement import chosen_device
    from trainer.data.scanning import ALONE, Scan
    from trainer.precision import Precision
    from trainer.recipes import make_task
    from trainer.task import Evaluation

MOST_THREADS = 1024


def main() -> None:
    """Prints the metrics. Exits with 1 and one line on stderr if the checkpoint or the data cannot be used."""
    parser = argparse.ArgumentParser(prog="trainer.evaluate", description="Evaluate a checkpoint's weights.")
    parser.add_argument(
        "state",
        metavar="STATE_PT",
        help="the path of the checkpoint's state.pt; `-`: read the path from a line of stdin",
    )
    parser.add_argument(
        "--data", metavar="SOURCE", help="`digits`, a path or a file:// URL; default: the training's source"
    )
    parser.add_argument("--base", metavar="DIR", help="the base of an adapter; default: the one of the training")
    parser.add_argument("--device", default="auto", help="`auto`, `cpu`, `cuda`, `cuda:1`, …")
    arguments = parser.parse_args()
    state = sys.stdin.readline().rstrip("\n") if arguments.state == "-" else arguments.state
    try:
        result = evaluate(Path(state), source=arguments.data, base=arguments.base, device=arguments.device)
    except TorchyardError as error:
        sys.exit(f"error: {error.message}")
    print(json.dumps(result))  # noqa: T201 stdout is data


def evaluate(
    state_path: Path, *, source: str | None = None, base: str | None = None, device: str = "auto"
) -> dict[str, Any]:
    """Returns the recipe's metrics on the validation split of `source`, and `samples`. `base`: that of an adapter.

    The metrics of a classifier are `loss`, `accuracy` and, with more than five classes, `accuracy_top5`. Raises
    DataError and ConfigError.
    """
    where = chosen_device(device)
    # Nobody limits this process, and the file may be anybody's: a job is limited, and reads what its owner has named.
    evaluation = measured(state_path, source=source, base=base, device=where, scan=Scan(confined=True))
    metrics = {key.removeprefix("val/"): value for key, value in evaluation.metrics.items()}
    return {**metrics, "samples": evaluation.samples}


def measured(
    state_path: Path,
    *,
    source: str | None,
    base: str | None = None,
    device: torch.device,
    on_batch: Callable[[], None] = lambda: None,
    scan: Scan = ALONE,
) -> Evaluation:
    """Returns the evaluation of a checkpoint's weights on the validation split of `source`. None: as it was trained.

    `base`: the folder of an adapter's base; None: the one that the configuration names.

    Nothing is left of the training but the file: the model is a new one, and there is no process group. `on_batch` is
    called after each batch. Raises DataError and ConfigError.
    """
    state = checkpoint.read(state_path)
    torch.set_num_threads(_threads(state))
    saved = checkpoint.config_of(state_path, state)
    try:
        check_size(saved, state)
    except BaseException as error:
        checkpoint.raise_unless_failed(error)
        raise DataError(f"{state_path} cannot be used: {checkpoint.reason(error)}") from error
    config = saved.model_copy(update={"distributed": DistributedConfig()})  # one process has no shards
    data, weights = source or config.data.source, (base if config.STARTS_ON_BASE else None) or "none"
    task = make_task(config, source=data, weights=weights, device=device, metadata=state, scan=scan)
    try:
        task.model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise ConfigError(f"the data does not fit the checkpoint's model: {error}") from error
    batch_size = state.get("sampler", {}).get("batch_size")
    with Precision(config.training.precision, device).evaluation():
        return task.evaluate(None, on_batch=on_batch, batch_size=batch_size)


def _threads(state: dict[str, Any]) -> int:
    """Returns the CPU threads of the training."""
    threads = state.get("threads")
    return threads if isinstance(threads, int) and 0 < threads <= MOST_THREADS else torch.get_num_threads()


if __name__ == "__main__":
    main()
