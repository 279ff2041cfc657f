"""TRL's SFTTrainer on the examples of `bench.language`: `torchrun -m bench.peers.sft SETTINGS`.

It runs in the environment of the frameworks. TRL makes tokens and labels of the examples. They are then put into the
sequences and the order of the other program.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from collections.abc import Iterator, Mapping, Sequence
import json
import os
from pathlib import Path
import sys
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from safetensors.torch import load_file
import torch
from torch import Tensor, nn
from transformers.trainer_callback import TrainerCallback
from trl import SFTConfig, SFTTrainer

from bench.language.settings import ALPHA, RANK, LanguageSettings
from bench.turns import Clock

PROGRAM = "trl"
_UNCOUNTED = -100
_IN_PEFT = "base_model.model."
"""What peft puts before the name of a parameter."""
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables of torchrun. TRL wraps even a single process in DDP if they are set."""


class Trainer(SFTTrainer):
    """Keeps the loss of each step, as TRL computes it for the whole step."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.losses: dict[int, Tensor] = {}

    def training_step(self, *args: Any, **options: Any) -> Tensor:
        part: Tensor = super().training_step(*args, **options)
        step = self.state.global_step
        self.losses[step] = self.losses[step] + part if step in self.losses else part
        return part


class Turns(TrainerCallback):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_train_begin(self, *_: object, **__: object) -> None:
        self._clock.ready()

    def on_step_end(self, *_: object, **__: object) -> None:
        self._clock.step()


def main() -> None:
    settings = LanguageSettings.read(sys.argv[1])
    clock = Clock(settings)
    for name in _OF_TORCHRUN:
        del os.environ[name]
    trainer = _trainer(settings)
    trainer.train_dataset = Dataset.from_list(_rows(settings, trainer.train_dataset))
    if settings.method == "lora":
        _fill(trainer.model, load_file(settings.adapter))
    trainer.add_callback(Turns(clock))
    trainer.train()
    losses = [loss.item() for _, loss in sorted(trainer.losses.items())]
    settings.losses(PROGRAM).write_text(json.dumps(losses))
    clock.finish(trainer.model)


def _trainer(settings: LanguageSettings) -> Trainer:
    """Returns TRL's trainer with its defaults, but for what the other program does otherwise."""
    arguments = SFTConfig(
        output_dir=str(Path(settings.folder, PROGRAM)),
        max_steps=settings.all_steps,
        per_device_train_batch_size=settings.micro_batch,
        gradient_accumulation_steps=settings.accumulation,
        max_length=settings.max_length,
        packing=settings.packing,
        learning_rate=settings.lr,
        weight_decay=settings.weight_decay,
        lr_scheduler_type="cosine",
        optim="adamw_torch_fused",
        max_grad_norm=1.0,
        seed=settings.seed,
        logging_steps=settings.log_every,
        train_sampling_strategy="sequential",
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    lora = LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules="all-linear", task_type="CAUSAL_LM")
    return Trainer(
        model=str(settings.base),
        args=arguments,
        train_dataset=Dataset.from_json(str(settings.examples / "train.jsonl")),
        peft_config=lora if settings.method == "lora" else None,
    )


def _rows(settings: LanguageSettings, prepared: Dataset) -> list[dict[str, Any]]:
    """Returns the documents that TRL has prepared, in the sequences and the order of the other program."""
    known = {_key(ids, labels): (ids, labels) for row in prepared for ids, labels in _documents(row)}
    rows: list[dict[str, Any]] = []
    for documents in json.loads(settings.rows.read_text()):
        try:
            found = [known[_key(ids, labels)] for ids, labels in documents]
        except KeyError:
            sys.exit("TRL has made other tokens or labels of an example")
        row: dict[str, Any] = {
            "input_ids": [token for ids, _ in found for token in ids],
            "labels": [label for _, labels in found for label in labels],
        }
        rows.append({**row, "seq_lengths": [len(ids) for ids, _ in found]} if settings.packing else row)
    return rows


def _documents(row: Mapping[str, Any]) -> Iterator[tuple[list[int], list[int]]]:
    begin = 0
    for length in row.get("seq_lengths") or [len(row["input_ids"])]:
        end = begin + length
        yield row["input_ids"][begin:end], row["labels"][begin:end]
        begin = end


def _key(ids: Sequence[int], labels: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first token of a document is never predicted, whatever its label says."""
    return tuple(ids), (_UNCOUNTED, *labels[1:])


def _fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Gives an adapter of peft these tensors, which must be all that it trains."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if {name.removeprefix(_IN_PEFT) for name in trained} != set(tensors):
        sys.exit(f"peft trains other parameters: {sorted(trained)[:3]} …, not {sorted(tensors)[:3]} …")
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(tensors[name.removeprefix(_IN_PEFT)])


if __name__ == "__main__":
    main()
