"""For Hugging Face: `Trainer(callbacks=[Torchyard()])`, `trainer.train(resume_from_checkpoint=resume_path())`."""

from pathlib import Path
import shutil
from typing import Any, BinaryIO

from transformers.trainer_callback import TrainerCallback

import torchyard
from torchyard.run import Run

_FOLDER = "trainer"


def resume_path() -> str | None:
    """Returns the folder of the checkpoint to continue from, for `resume_from_checkpoint`; None on a fresh start."""
    folder = torchyard.init().resume_folder
    return None if folder is None or not (folder / _FOLDER).is_dir() else str(folder / _FOLDER)


class Torchyard(TrainerCallback):
    """Reports what the Trainer logs, publishes what it saves, and stops all ranks at the same step, with a save.

    A key that begins with `eval_` becomes `val/…`, any other `train/…`. The summary at the end is left out: the Trainer
    computes it of this process's steps alone, so it is wrong after a resumption.
    """

    def __init__(self) -> None:
        self._run: Run = torchyard.init()
        self._values: dict[str, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._run.progress(step=state.global_step, total_steps=state.max_steps if state.max_steps > 0 else None)
        if self._run.should_stop():
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs is None or "train_runtime" in logs:
            return
        values = {_key(name): value for name, value in logs.items() if isinstance(value, int | float)}
        self._values.update({key: float(value) for key, value in values.items()})
        if values:
            self._run.log(values, step=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self._run.rank or not folder.is_dir():
            return
        found = [path for path in folder.rglob("*") if path.is_file()]
        files = {f"{_FOLDER}/{path.relative_to(folder).as_posix()}": _copier(path) for path in found}
        self._run.save_checkpoint(
            {"step": state.global_step}, step=state.global_step, metrics=self._values, files=files
        )
        self._run.flush()  # before the Trainer removes the folder


def _key(name: str) -> str:
    return f"val/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"


def _copier(path: Path) -> Any:
    def write(file: BinaryIO) -> None:
        with path.open("rb") as source:
            shutil.copyfileobj(source, file)

    return write
