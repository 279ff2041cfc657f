"""accelerate with a shuffled data set: `torchyard run --devices 2 accelerate_loop.py`, or accelerate launch."""

from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
import torch
from torch.utils.data import DataLoader, TensorDataset

import torchyard

run = torchyard.init()
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
set_seed(0)
x = torch.randn(2048, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
step, epochs, state = 0, 6, run.resume()
if state is not None:
    accelerator.unwrap_model(model).load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
stop = False
for epoch in range(step // len(loader), epochs):
    loader.set_epoch(epoch)
    for inputs, targets in accelerator.skip_first_batches(loader, step % len(loader)):
        step += 1
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        run.log({"train/loss": loss}, step=step)
        stop = run.should_stop()
        if stop or step % len(loader) == 0:
            weights = accelerator.unwrap_model(model).state_dict()
            run.save_checkpoint({"model": weights, "optimizer": optimizer.state_dict(), "step": step}, step=step)
        if stop:
            break
    if stop:
        break
accelerator.wait_for_everyone()
accelerator.end_training()
