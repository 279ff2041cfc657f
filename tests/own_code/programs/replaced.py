"""Writes one file again and again, in place."""

import os

import torch
from training import STEPS, Training

training = Training()
if os.path.exists("last.pt"):
    training.load(torch.load("last.pt"))
training.begins()
while training.done < STEPS:
    training.advance()
    torch.save(training.state(), "last.pt")
    training.saved()
training.ends()
