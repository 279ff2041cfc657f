"""A sweep is a loop: it starts a job for each learning rate, waits for all, and fetches the best checkpoint."""

from torchyard import Client

with Client() as client:
    jobs = {
        lr: client.run("ddp.py", folder="examples", args=["--lr", lr], name=f"sweep-{lr}") for lr in (0.1, 0.01, 0.001)
    }
    losses: dict[float, float] = {}
    for lr, job in jobs.items():
        if job.wait().state == "succeeded":
            losses[lr] = job.metrics("train/loss")["train/loss"].values[-1]
    best = min(losses, key=lambda lr: losses[lr])
    print(f"best: lr {best}, {jobs[best].best_checkpoint().download('best.pt')}")
