from typing import Any

from torch import nn

def get_model_conversion_mapping(model: nn.Module) -> list[Any]: ...
