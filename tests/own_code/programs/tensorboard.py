"""Reports by event files of TensorBoard alone. `records.bin` has a record for each step, all of one length."""

import os
import pathlib

import torch
from training import STEPS, Training

records = pathlib.Path("records.bin").read_bytes()
size = len(records) // STEPS
training = Training()
if os.path.exists("last.pt"):
    training.load(torch.load("last.pt"))
training.begins()
os.makedirs("runs", exist_ok=True)
with open("runs/events.out.tfevents.1700000000.host.1.0", "ab") as events:
    while training.done < STEPS:
        training.advance()
        events.write(records[size * (training.done - 1) : size * training.done])
        events.flush()
        torch.save(training.state(), "last.tmp")
        os.replace("last.tmp", "last.pt")
        training.saved()
training.ends()
