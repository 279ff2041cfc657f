"""For Lightning: `Trainer(callbacks=[Torchyard()])` and `trainer.fit(…, ckpt_path=resume_path())`."""

from pathlib import Path
import shutil
import tempfile
from typing import Any, BinaryIO

import lightning

import torchyard
from torchyard.run import Run

_FILE = "lightning.ckpt"


def resume_path() -> str | None:
    """Returns the checkpoint of Lightning to continue from, for `ckpt_path`; None on a fresh start."""
    folder = torchyard.init().resume_folder
    return None if folder is None or not (folder / _FILE).exists() else str(folder / _FILE)


class Torchyard(lightning.Callback):
    """Reports what the module logs, saves after each epoch and at a stop, and stops all ranks at the same step.

    Saves one file: sharded checkpoints, as of FSDP with `state_dict_type="sharded"`, are not published.
    """

    def __init__(self) -> None:
        self._run: Run = torchyard.init()
        self._stopped = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._run.hear_sigterm()  # Lightning's handler ends the training at once, with a collective of one rank

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step % trainer.log_every_n_steps == 0:
            self._report(trainer)
        if not self._stopped and self._run.should_stop():
            self._stopped = trainer.should_stop = True
            self._save(trainer, pl_module, end_of_epoch=False)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._report(trainer)
        if not self._stopped:
            self._save(trainer, pl_module, end_of_epoch=True)

    def _report(self, trainer: Any) -> None:
        if trainer.logged_metrics:
            self._run.log(dict(trainer.logged_metrics), step=trainer.global_step)
        self._run.progress(step=trainer.global_step, epoch=trainer.current_epoch + 1, epochs=_known(trainer.max_epochs))

    def _save(self, trainer: Any, pl_module: Any, *, end_of_epoch: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _FILE
            trainer.save_checkpoint(path)  # every rank calls it, and rank 0 writes

            def write(file: BinaryIO) -> None:
                with path.open("rb") as source:
                    shutil.copyfileobj(source, file)

            if trainer.is_global_zero and path.is_file():
                self._run.save_checkpoint(
                    {"model": pl_module.state_dict()},
                    step=trainer.global_step,
                    epoch=trainer.current_epoch + 1,
                    end_of_epoch=end_of_epoch,
                    metrics={key: float(value) for key, value in trainer.logged_metrics.items()},
                    files={_FILE: write},
                )
                self._run.flush()  # before the file is removed


def _known(epochs: int | None) -> int | None:
    return epochs if epochs is not None and epochs > 0 else None
