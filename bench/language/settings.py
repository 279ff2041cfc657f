"""The settings of both programs of `python -m bench.language`, and the places of their files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.turns import TrainingSettings

RANK, ALPHA = 8, 16.0


@dataclass(frozen=True)
class LanguageSettings(TrainingSettings):
    """A fine-tuning of one process. `batch` are the sequences of a step; a micro-batch has `batch / accumulation`."""

    folder: str = ""
    form: Literal["text", "prompt"] = "text"
    method: Literal["lora", "full"] = "lora"
    packing: bool = True
    accumulation: int = 1
    max_length: int = 512

    @property
    def micro_batch(self) -> int:
        return self.batch // self.accumulation

    @property
    def all_steps(self) -> int:
        return self.samples // self.batch

    @property
    def base(self) -> Path:
        """The folder of the base, as Hugging Face has it."""
        return Path(self.folder, "base")

    @property
    def examples(self) -> Path:
        """The folder with train.jsonl and val.jsonl."""
        return Path(self.folder, "data")

    @property
    def rows(self) -> Path:
        """The sequences of all steps, in the order of the training: see `bench.language.rows`."""
        return Path(self.folder, "rows.json")

    @property
    def adapter(self) -> Path:
        """The adapter with which both begin, by the names of the parameters."""
        return Path(self.folder, "adapter.safetensors")

    def losses(self, program: str) -> Path:
        """Into which a program writes the loss of each step."""
        return Path(self.folder, f"losses-{program}.json")


def job(settings: LanguageSettings) -> dict[str, Any]:
    """Returns the spec of the training."""
    return {
        "trainer": "causal-lm",
        "config": {
            "model": {
                "weights": settings.base.as_uri(),
                "method": settings.method,
                "lora": {"rank": RANK, "alpha": ALPHA},
            },
            "data": {
                "source": settings.examples.as_uri(),
                "max_length": settings.max_length,
                "packing": settings.packing,
            },
            "training": {
                "max_steps": settings.all_steps,
                "per_device_batch_size": settings.micro_batch,
                "gradient_accumulation_steps": settings.accumulation,
                "seed": settings.seed,
                "precision": "fp32",
            },
            "optimizer": {
                "lr": settings.lr,
                "weight_decay": settings.weight_decay,
                "clip_grad_norm": 1.0,
                "fused": True,  # as TRL's is by default, on CPUs too
            },
            "lr_scheduler": {"name": "cosine", "warmup_steps": 0},  # transformers' warm-up begins at 0, ours above it
            "evaluation": {"samples": 0, "remeasure_best": False},
            "logging": {"every_steps": settings.log_every},
        },
        "checkpoint": {"every_epochs": None},
    }
