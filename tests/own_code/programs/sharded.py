"""Writes a folder of shards for each step by torch.distributed.checkpoint."""

import pathlib

import torch.distributed.checkpoint as dcp
from training import STEPS, Training

training = Training()
found = sorted(pathlib.Path("out").glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))
if found:
    training.advance()  # so that the optimizer has the state that is read into
    state = training.state()
    dcp.load(state, checkpoint_id=found[-1], no_dist=True)
    training.load(state)
training.begins()
while training.done < STEPS:
    training.advance()
    dcp.save(training.state(), checkpoint_id=pathlib.Path("out", f"step_{training.done}"), no_dist=True)
    training.saved()
training.ends()
