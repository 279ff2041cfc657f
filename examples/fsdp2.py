"""FSDP2, which splits every parameter over the ranks: `torchyard run --devices 2 fsdp2.py`, or torchrun."""

import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import torchyard

run = torchyard.init()
if torch.cuda.is_available():
    torch.cuda.set_device(run.device)
distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
mesh = distributed.init_device_mesh(run.device.type, (run.world_size,))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)).to(run.device)
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
start, steps, state = 0, 200, run.resume()
if state is not None:
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=whole
    )
    start = state["step"]
for step in range(start + 1, steps + 1):
    torch.manual_seed(step * run.world_size + run.rank)
    x = torch.randn(64, 8, device=run.device)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.log({"train/loss": loss}, step=step)
    stop = run.should_stop()
    if stop or step % 50 == 0:
        weights, moments = get_state_dict(model, optimizer, options=whole)  # all ranks call it, rank 0 gets the state
        run.save_checkpoint({"model": weights, "optimizer": moments, "step": step}, step=step)
    if stop:
        break
distributed.barrier()
distributed.destroy_process_group()
