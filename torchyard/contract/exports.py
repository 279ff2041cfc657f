"""The formats in which a model is exported."""

from typing import Literal, get_args

Format = Literal["torch-export", "onnx", "safetensors", "hf"]
FORMATS: tuple[Format, ...] = get_args(Format)
ENDINGS: dict[Format, str] = {"torch-export": ".pt2", "onnx": ".onnx", "safetensors": ".safetensors", "hf": "-hf"}
"""What follows the name of a checkpoint in that of its export. `hf` is a folder."""
