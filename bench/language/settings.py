"""What both programs of `python -m bench.language` train, and where they find it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
