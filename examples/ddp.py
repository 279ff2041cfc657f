"""Plain DDP: `torchyard run --devices 2 ddp.py`, or torchrun."""

import argparse

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import torchyard

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
lr = parser.parse_args().lr
run = torchyard.init()
distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
if torch.cuda.is_available():
    torch.cuda.set_device(run.device)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1).to(run.device))
optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
start, steps, state = 0, 200, run.resume()
if state is not None:
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
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
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        run.save_checkpoint(state, step=step, metrics={"val/loss": loss.item()})
    if stop:
        break
distributed.barrier()
distributed.destroy_process_group()
