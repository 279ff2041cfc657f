"""Creates a sweep, waits for its end, prints its ranking, and downloads the best checkpoint."""

from torchyard import Client

SWEEP = {
    "name": "digits-sweep",
    "parameters": {"config.optimizer.lr": [0.1, 0.01, 0.001], "config.training.seed": "1..2"},
    "monitor": "val/accuracy",
    "mode": "max",
    "job": {
        "trainer": "image-classification",
        "config": {"data": {"source": "digits"}, "training": {"epochs": 2}},
    },
}

with Client() as client:
    sweep = client.sweeps.wait(client.sweeps.create(SWEEP).id)
    for trial in client.sweeps.trials(sweep.id):
        print(trial.rank, trial.value, trial.point)
    best = sweep.best
    if best is not None and best.job_id is not None:
        path = client.jobs.download(best.job_id, best.checkpoint_id, to="best.pt")
        print(f"best: trial {best.trial} with {best.value:.4f}, {path}")
