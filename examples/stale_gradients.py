"""Asynchronous updates of shared weights: `torchyard run --devices 2 stale_gradients.py`.

Each rank changes the weights as soon as it has a gradient, without waiting for the others. So gradients are stale:
other ranks have changed the weights in the meantime. An update may be lost, and no two runs are equal. `ddp.py` waits
for the slowest rank and is exact.
"""

from pathlib import Path
import tempfile

import torch
from torch import distributed
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import torchyard

run = torchyard.init()
distributed.init_process_group("gloo")  # for start and end only: a step has no collective
torch.manual_seed(0)
model = torch.nn.Linear(8, 1).to(run.device)
start, steps, lr, state = 0, 200, 0.05, run.resume()
if state is not None:
    model.load_state_dict(state["model"])
    start = state["step"]
paths = [tempfile.mkstemp()[1] if run.rank == 0 else ""]
distributed.broadcast_object_list(paths)
size = sum(weight.numel() for weight in model.parameters())
shared = torch.from_file(paths[0], shared=True, size=size + 1)  # the weights and the number of updates
if run.rank == 0:
    shared[:size] = parameters_to_vector(model.parameters()).detach()
    shared[size] = 0
distributed.barrier()
if run.rank == 0:
    Path(paths[0]).unlink()  # all ranks have it open
for step in range(start + 1, steps + 1):
    read = shared.clone()
    vector_to_parameters(read[:size].to(run.device), model.parameters())
    torch.manual_seed(step * run.world_size + run.rank)
    x = torch.randn(64, 8, device=run.device)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    shared[:size] -= lr * parameters_to_vector(gradients).cpu()  # without a lock: another rank may write too
    staleness = shared[size] - read[size]
    shared[size] += 1
    run.log({"train/loss": loss, "train/staleness": staleness}, step=step)
    stop = run.should_stop()  # ranks may see it some steps apart
    if stop or step % 50 == 0:
        vector_to_parameters(shared[:size].to(run.device), model.parameters())
        run.save_checkpoint({"model": model.state_dict(), "step": step}, step=step)
    if stop:
        break
distributed.barrier()
distributed.destroy_process_group()
