"""Lightning. The callback is all that it needs: `torchyard run examples/lightning_trainer.py`."""

import lightning
import torch

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


trainer = lightning.Trainer(max_epochs=4, logger=False, enable_checkpointing=False, callbacks=[Torchyard()])
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(1024, 8), batch_size=64), ckpt_path=resume_path())
