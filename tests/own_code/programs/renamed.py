"""Writes a temporary file and renames it."""

import os
import pathlib

import torch
from training import STEPS, Training

folder = pathlib.Path("out")
folder.mkdir(exist_ok=True)
training = Training()
if (folder / "last.pt").exists():
    training.load(torch.load(folder / "last.pt"))
training.begins()
while training.done < STEPS:
    training.advance()
    torch.save(training.state(), folder / "last.tmp")
    os.replace(folder / "last.tmp", folder / "last.pt")
    training.saved()
training.ends()
