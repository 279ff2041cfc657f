"""Writes a file for each step, and `last.pt` is a further name of the newest, as timm does."""

import os

import torch
from training import STEPS, Training

training = Training()
if os.path.exists("last.pt"):
    training.load(torch.load("last.pt"))
training.begins()
while training.done < STEPS:
    training.advance()
    torch.save(training.state(), "tmp.pt")
    os.replace("tmp.pt", f"checkpoint-{training.done}.pt")
    if os.path.exists("last.pt"):
        os.unlink("last.pt")
    os.link(f"checkpoint-{training.done}.pt", "last.pt")
    training.saved()
training.ends()
