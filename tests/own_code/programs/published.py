"""Publishes its checkpoints by the run context."""

from training import STEPS, Training

import torchyard

run = torchyard.init()
training = Training()
state = run.resume()
if state is not None:
    training.load(state)
training.begins()
while training.done < STEPS and not run.should_stop():
    training.advance()
    run.save_checkpoint(training.state(), step=training.done)
    training.saved(run.should_stop)
if training.done == STEPS:
    training.ends()
