"""A job that runs out of memory while it trains goes on with smaller micro-batches and the same global batch."""

import pytest

from tests.e2e.service import Service
from torchyard.contract.states import JobState

TRAINS = """
import torch, torchyard
from torchyard.contract.recipes.classification import ImageClassification
from torchyard.contract.spec import CheckpointPolicy
from trainer.train import Training
from trainer.recipes import make_task
from trainer.world import joined

run = torchyard.init()
config = ImageClassification.model_validate(
    {"data": {"source": "digits"}, "training": {"epochs": 2, "per_device_batch_size": 16, "auto_batch": True}}
)
with joined(config.distributed.collective_timeout()) as world:
    task = make_task(config, source="digits", weights="none", device=world.device)
    training = Training(
        task, trainer="script", config=config, policy=CheckpointPolicy(), run=run, world=world, state=run.resume()
    )

    def limit(model, inputs):  # what the trial before the first step did not see
        if model.training and len(inputs[0]) > (8 if training.position.epoch == 1 else 4):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    task.model.register_forward_pre_hook(limit)
    print(training.sampler.batch_size, "of", training.sampler.global_batch, "from epoch", training.position.epoch)
    training.train()
run.close()
"""


@pytest.mark.thorough
def test_each_attempt_after_one_that_ran_out_of_memory_halves_the_micro_batch(service: Service) -> None:
    job = service.submit_script("greedy", TRAINS, resources={"devices_per_node": 2}, max_restarts=2)
    done = service.wait(job.id, JobState.SUCCEEDED)
    ended = [attempt.end_reason for attempt in service.client.jobs.attempts(job.id)]
    assert ended == ["out_of_memory", "out_of_memory", "completed"]
    printed = [line.text for line in service.client.jobs.logs(job.id, rank=0) if " from epoch " in line.text]
    assert printed == ["16 of 32 from epoch 1", "8 of 32 from epoch 1", "4 of 32 from epoch 2"]
    assert done.attempt == 3
    messages = [event.data["text"] for event in service.client.jobs.events(job.id) if event.type == "message"]
    assert [text for text in messages if "micro-batches" in text] == [
        f"training ran out of memory before: micro-batches are reduced from {before} samples to {after}. An optimizer "
        "step takes more of them, and the global batch stays 32"
        for before, after in ((16, 8), (8, 4))
    ]
