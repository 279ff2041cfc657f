"""Lightning with Torchyard's callback: `torchyard run --devices 2 lightning_trainer.py`.

The loader saves its position in the epoch, because Lightning does not skip batches on resume.
"""

import lightning
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import torchyard
from torchyard.integrations.lightning import Torchyard, resume_path


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        loss = (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


run = torchyard.init()
lightning.seed_everything(0)
data = torch.randn(2048, 8)
sampler = StatefulDistributedSampler(data, num_replicas=run.world_size, rank=run.rank)
trainer = lightning.Trainer(
    max_epochs=6,
    devices=run.world_size,
    use_distributed_sampler=False,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    log_every_n_steps=1,
    callbacks=[Torchyard()],
)
trainer.fit(Model(), StatefulDataLoader(data, batch_size=16, sampler=sampler), ckpt_path=resume_path())
