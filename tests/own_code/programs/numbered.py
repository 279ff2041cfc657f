"""Writes a file for each step and continues from the highest number, as pytorch/examples and many others do."""

import pathlib

import torch
from training import STEPS, Training

training = Training()
found = sorted(pathlib.Path().glob("epoch_*.pt"), key=lambda path: int(path.stem.removeprefix("epoch_")))
if found:
    training.load(torch.load(found[-1]))
training.begins()
while training.done < STEPS:
    training.advance()
    torch.save(training.state(), f"epoch_{training.done}.pt")
    training.saved()
training.ends()
