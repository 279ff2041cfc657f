"""A plain loop with DistributedDataParallel: `torchrun -m bench.peers.raw_loop SETTINGS`."""

import sys

from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from bench.peers.pictures import Pictures, make_model, make_optimizer, precision, rank_device
from bench.turns import Clock, TrainingSettings


def main() -> None:
    settings = TrainingSettings.read(sys.argv[1])
    device = rank_device()
    on_gpu = device.type == "cuda"
    distributed.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    model = make_model(settings, device)
    wrapped = DistributedDataParallel(
        model, device_ids=[device.index] if on_gpu else None, gradient_as_bucket_view=True, broadcast_buffers=False
    )
    optimizer = make_optimizer(settings, model, device)
    pictures = Pictures(settings, device)
    clock = Clock(settings)
    clock.ready()
    for step, (inputs, labels) in enumerate(pictures, start=1):
        with precision(device):
            loss = cross_entropy(wrapped(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % settings.log_every == 0 and clock.rank == 0:
            print(f"step {step} loss {loss.item():.4f}", file=sys.stderr)
        clock.step()
    clock.finish(model)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
