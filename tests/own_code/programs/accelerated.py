"""accelerate with its own folder of states."""

import os

import accelerate
from training import STEPS, Training

accelerator = accelerate.Accelerator(cpu=True)
training = Training()
training.model, training.optimizer = accelerator.prepare(training.model, training.optimizer)


class Progress:
    def state_dict(self) -> dict[str, int]:
        return {"done": training.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        training.done = state["done"]


accelerator.register_for_checkpointing(Progress())
found = sorted(int(name.removeprefix("state_")) for name in os.listdir("out")) if os.path.isdir("out") else []
if found:
    accelerator.load_state(f"out/state_{found[-1]}")
training.begins()
while training.done < STEPS:
    training.advance()
    accelerator.save_state(f"out/state_{training.done}")
    training.saved()
training.ends()
