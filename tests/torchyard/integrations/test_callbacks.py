"""The callbacks report and publish what the framework does, and a second process continues from it."""

import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

from torchyard.contract.attempts.rundir import RunDir

LIGHTNING = """
import lightning, torch
from torchyard.integrations.lightning import Torchyard, resume_path

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        loss = self.layer(batch).square().mean()
        self.log("train/loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

import sys
data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)
trainer = lightning.Trainer(max_epochs=int(sys.argv[1]), accelerator="cpu", devices=1, logger=False, barebones=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    callbacks=[Torchyard()])
began = []
class Began(lightning.Callback):
    def on_train_epoch_start(self, trainer, module): began.append(trainer.current_epoch + 1)
trainer.callbacks.append(Began())
trainer.fit(Model(), data, ckpt_path=resume_path())
print("epochs", *began)
"""
TRANSFORMERS = """
import sys, torch, transformers
from torchyard.integrations.transformers import Torchyard, resume_path

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}

epochs = []
class Began(transformers.TrainerCallback):
    def on_epoch_begin(self, args, state, control, **_): epochs.append(int(state.epoch) + 1)
args = transformers.TrainingArguments(output_dir="out", num_train_epochs=int(sys.argv[1]), save_strategy="epoch",
    per_device_train_batch_size=2, logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True)
data = [{"x": torch.ones(4)} for _ in range(8)]
trainer = transformers.Trainer(Model(), args, train_dataset=data, callbacks=[Torchyard(), Began()])
trainer.train(resume_from_checkpoint=resume_path())
print("epochs", *epochs)
"""


def train(program: str, folder: Path, *, epochs: int, resume: Path | None = None) -> tuple[RunDir, str]:
    run = RunDir(folder)
    run.create()
    env = {**os.environ, "TORCHYARD_RUN_DIR": str(run.job), "CUDA_VISIBLE_DEVICES": ""}
    if resume is not None:
        env["TORCHYARD_RESUME_FROM"] = str(resume)
    command = [sys.executable, "-P", "-c", program, str(epochs)]
    done = subprocess.run(command, env=env, cwd=run.artifacts, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return run, done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("program", [LIGHTNING, TRANSFORMERS], ids=["lightning", "transformers"])
def test_a_second_process_continues_from_what_the_first_published(program: str, tmp_path: Path) -> None:
    first, said = train(program, tmp_path / "1", epochs=1)
    assert "epochs 1" in said
    lines = [json.loads(line) for line in first.events.read_text().splitlines()]
    assert [line["step"] for line in lines if line["type"] == "metric" and "train/loss" in line["values"]][-1] == 4
    (saved,) = [path for path in first.checkpoints.iterdir() if not path.name.startswith(".")]
    assert json.loads((saved / "manifest.json").read_text())["step"] == 4
    _, said = train(program, tmp_path / "2", epochs=2, resume=saved)
    assert "epochs 2" in said


LOGS = """
from types import SimpleNamespace
from torchyard.integrations.transformers import Torchyard

callback = Torchyard()
logs = [{"loss": 3.0, "note": "text"}, {"eval_loss": 2.0}, {"train_runtime": 1.0, "train_loss": 9.0}]
for step, values in enumerate(logs, 1):
    callback.on_log(None, SimpleNamespace(global_step=step), None, logs=values)
"""


@pytest.mark.thorough
def test_the_numbers_that_the_trainer_logs_are_reported_without_its_summary(tmp_path: Path) -> None:
    run, _ = train(LOGS, tmp_path, epochs=1)
    lines = [json.loads(line) for line in run.events.read_text().splitlines()]
    found = [(line["step"], line["values"]) for line in lines if line["type"] == "metric"]
    assert found == [(1, {"train/loss": 3.0}), (2, {"val/loss": 2.0})]
