"""A pipeline: each rank has some layers of the model. `torchyard run --devices 2 pipeline.py`, or torchrun."""

from collections import OrderedDict
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import torchyard

run = torchyard.init()
if torch.cuda.is_available():
    torch.cuda.set_device(run.device)
distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
torch.manual_seed(0)  # all ranks make the same weights and keep their layers
whole = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
layers, rank, last = list(whole.named_children()), run.rank, run.world_size - 1
first, end = (len(layers) * number // run.world_size for number in (rank, rank + 1))
part = nn.Sequential(OrderedDict(layers[first:end])).to(run.device)  # parameter names of the whole model
optimizer = torch.optim.AdamW(part.parameters(), lr=0.01)
start, steps, state = 0, 200, run.resume()
if state is not None:  # needs the same number of ranks
    weights = {name: value for name, value in state["model"].items() if name in part.state_dict()}
    set_state_dict(part, optimizer, model_state_dict=weights, optim_state_dict=state["optimizers"][rank])
    start = state["step"]
stage = PipelineStage(part, rank, run.world_size, run.device)
# It averages the gradients over the micro-batches.
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
for step in range(start + 1, steps + 1):
    torch.manual_seed(step)
    x = torch.randn(64, 8, device=run.device)
    losses: list[torch.Tensor] = []
    optimizer.zero_grad()
    inputs = (x,) if rank == 0 else ()
    if rank == last:
        schedule.step(*inputs, target=x.sum(1, keepdim=True), losses=losses)
    else:
        schedule.step(*inputs)
    optimizer.step()
    loss = torch.stack(losses).mean() if rank == last else torch.zeros((), device=run.device)
    distributed.broadcast(loss, src=last)  # rank 0 logs it
    run.log({"train/loss": loss}, step=step)
    stop = run.should_stop()
    if stop or step % 50 == 0:
        parts: list[Any] = [None] * run.world_size
        on_host = get_state_dict(part, optimizer, options=StateDictOptions(cpu_offload=True))
        distributed.all_gather_object(parts, on_host)
        model = {name: value for weights, _ in parts for name, value in weights.items()}
        run.save_checkpoint({"model": model, "optimizers": [moments for _, moments in parts], "step": step}, step=step)
    if stop:
        break
distributed.barrier()
distributed.destroy_process_group()
