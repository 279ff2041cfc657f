"""Hugging Face's Trainer with Torchyard's callback: `torchyard run --devices 2 huggingface_trainer.py`."""

import torch
from transformers import Trainer, TrainingArguments, set_seed

from torchyard.integrations.transformers import Torchyard, resume_path


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x) - labels).square().mean()}


set_seed(0)
x = torch.randn(2048, 8)
arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=6,
    per_device_train_batch_size=16,
    learning_rate=0.01,
    logging_steps=1,
    save_strategy="epoch",
    save_total_limit=1,
    report_to=[],
    use_cpu=not torch.cuda.is_available(),  # without it, ranks on CPUs train apart
    disable_tqdm=True,
)
trainer = Trainer(
    Model(),
    arguments,
    train_dataset=[{"x": row, "labels": row.sum(0, keepdim=True)} for row in x],
    callbacks=[Torchyard()],
)
trainer.train(resume_from_checkpoint=resume_path())
