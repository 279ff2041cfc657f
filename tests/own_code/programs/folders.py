"""Writes a folder of several files for each step, as Hugging Face's Trainer does."""

import json
import pathlib

from safetensors.torch import load_file, save_file
import torch
from training import STEPS, Training

training = Training()
found = sorted(pathlib.Path("out").glob("checkpoint-*"), key=lambda path: int(path.name.removeprefix("checkpoint-")))
if found:
    step = json.loads((found[-1] / "trainer_state.json").read_text())["global_step"]
    optimizer = torch.load(found[-1] / "optimizer.pt")
    training.load({"model": load_file(found[-1] / "model.safetensors"), "optimizer": optimizer, "step": step})
training.begins()
while training.done < STEPS:
    training.advance()
    folder = pathlib.Path("out", f"checkpoint-{training.done}")
    folder.mkdir(parents=True)
    save_file(training.model.state_dict(), folder / "model.safetensors")
    torch.save(training.optimizer.state_dict(), folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": training.done}))
    training.saved()
training.ends()
