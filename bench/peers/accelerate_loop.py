"""The loop of accelerate's guide: `torchrun -m bench.peers.accelerate_loop SETTINGS`."""

import sys

from accelerate import Accelerator, DistributedDataParallelKwargs
from torch.nn.functional import cross_entropy

from bench.peers.pictures import Pictures, in_bf16, make_model, make_optimizer, rank_device
from bench.turns import Clock, TrainingSettings


def main() -> None:
    settings = TrainingSettings.read(sys.argv[1])
    device = rank_device()
    options = DistributedDataParallelKwargs(gradient_as_bucket_view=True, broadcast_buffers=False)
    accelerator = Accelerator(
        cpu=device.type == "cpu", mixed_precision="bf16" if in_bf16(device) else "no", kwargs_handlers=[options]
    )
    model = make_model(settings, device)
    optimizer = make_optimizer(settings, model, device)
    # The batches are on the device already. A loader of accelerate would only add cost.
    pictures = Pictures(settings, device)
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    clock = Clock(settings)
    clock.ready()
    for step, (inputs, labels) in enumerate(pictures, start=1):
        with accelerator.accumulate(wrapped):
            with accelerator.autocast():
                loss = cross_entropy(wrapped(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if step % settings.log_every == 0:
            accelerator.print(f"step {step} loss {loss.item():.4f}", file=sys.stderr)
        clock.step()
    clock.finish(accelerator.unwrap_model(wrapped))
    accelerator.end_training()


if __name__ == "__main__":
    main()
