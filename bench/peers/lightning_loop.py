"""Lightning's Trainer, without a progress bar and checkpoints: `torchrun -m bench.peers.lightning_loop SETTINGS`."""

from pathlib import Path
import sys
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bench.peers.pictures import Pictures, in_bf16, make_model, make_optimizer, rank_device
from bench.turns import Clock, TrainingSettings


class Classifier(LightningModule):
    def __init__(self, settings: TrainingSettings, device: torch.device) -> None:
        super().__init__()
        self.model = make_model(settings, device)
        self._settings = settings

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:  # pyrefly: ignore[bad-override] its takes anything
        inputs, labels = batch
        loss = cross_entropy(self.model(inputs), labels)
        if (number + 1) % self._settings.log_every == 0:
            self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self._settings, self.model, self.device)


class Turns(Callback):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._clock.ready()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._clock.step()


def main() -> None:
    settings = TrainingSettings.read(sys.argv[1])
    device = rank_device()
    module = Classifier(settings, device)
    clock = Clock(settings)
    trainer = Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=settings.processes,
        strategy=DDPStrategy(gradient_as_bucket_view=True, broadcast_buffers=False),
        precision="bf16-mixed" if in_bf16(device) else "32-true",
        max_epochs=1,
        log_every_n_steps=settings.log_every,
        logger=CSVLogger(Path(sys.argv[1]).parent / "lightning"),
        callbacks=[Turns(clock)],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, Pictures(settings, device))
    clock.finish(module.model)


if __name__ == "__main__":
    main()
