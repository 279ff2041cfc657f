"""Examples and configurations for tests that train language models."""

import json
from pathlib import Path
from typing import Any

from torchyard.contract.recipes import CausalLm

WORDS = ("open", "closed", "a film", "at noon", "fine", "short")


def prompts(file: Path, *, count: int = 40) -> Path:
    """Writes prompts with completions of different lengths."""
    lines = [
        {
            "prompt": f"Who asks {WORDS[number % 6]}? ",
            "completion": f"The yard is {WORDS[number % 5]}. " * (number % 4 + 1),
        }
        for number in range(count)
    ]
    return written(file, lines)


def texts(file: Path, *, count: int = 30) -> Path:
    return written(file, [{"text": f"The yard is {WORDS[number % 6]}. " * (number % 3 + 2)} for number in range(count)])


def messages(file: Path, *, count: int = 20) -> Path:
    def turn(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    lines = [
        {
            "messages": [
                turn("user", f"Who is {WORDS[number % 6]}?"),
                turn("assistant", f"The {WORDS[number % 5]} yard."),
            ]
        }
        for number in range(count)
    ]
    return written(file, lines)


def written(file: Path, lines: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def sections(base: Path, file: Path, **changes: Any) -> dict[str, Any]:
    """Returns a small configuration. Each of `changes` is merged into its section."""
    config: dict[str, Any] = {
        "model": {"weights": f"file://{base}", "lora": {"rank": 4}},
        "data": {"source": f"file://{file}", "max_length": 48, "val_fraction": 0.2},
        "training": {"epochs": 2, "per_device_batch_size": 4},
        "optimizer": {"lr": 0.01},
        "lr_scheduler": {"name": "constant", "warmup_steps": 0},
        "evaluation": {"samples": 2, "new_tokens": 8},
        "logging": {"every_steps": 1},
    }
    return config | {name: {**config.get(name, {}), **values} for name, values in changes.items()}


def recipe(base: Path, file: Path, **changes: Any) -> CausalLm:
    return CausalLm.model_validate(sections(base, file, **changes))
