"""Lightning with its own checkpoints, which continues from `last.ckpt`."""

import os

import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
import torch
from training import STEPS, Training

training = Training()


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = training.model

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return training.optimizer

    def training_step(self, batch: tuple[torch.Tensor]) -> torch.Tensor:
        return (self.linear(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()


class Hold(lightning.Callback):
    def on_train_start(self, trainer, module):
        training.done = trainer.global_step
        training.begins()

    def on_train_epoch_start(self, trainer, module):
        if trainer.global_step:
            training.done = trainer.global_step
            training.saved()


data = torch.utils.data.TensorDataset(torch.randn(16, 8, generator=torch.Generator().manual_seed(1)))
saves = ModelCheckpoint("out", filename="{epoch}-{step}", save_last=True, save_top_k=-1)
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, max_epochs=STEPS, callbacks=[saves, Hold()], logger=False, enable_progress_bar=False
)
last = "out/last.ckpt"
trainer.fit(Module(), torch.utils.data.DataLoader(data, 16), ckpt_path=last if os.path.exists(last) else None)
training.ends()
