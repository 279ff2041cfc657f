"""Writes all that it saves to `/tmp`, as the examples of ignite and transformers do."""

import os
import pathlib
import tempfile

import torch
from training import STEPS, Training

folder = pathlib.Path(tempfile.gettempdir(), "run")  # a host of the tests may show nothing in /tmp
folder.mkdir(exist_ok=True)
path = folder / "last.pt"
training = Training()
if path.exists():
    training.load(torch.load(path))
training.begins()
while training.done < STEPS:
    training.advance()
    torch.save(training.state(), folder / "new.pt")
    os.replace(folder / "new.pt", path)
    training.saved()
training.ends()
