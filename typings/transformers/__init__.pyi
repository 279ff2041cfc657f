# The names of transformers that we use. Its own `__init__` takes the type checker longer than a fifth of our code.
from typing import Any

from torch import nn

class PreTrainedConfig:
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class PreTrainedModel(nn.Module):
    config: PreTrainedConfig

class TokenizersBackend:
    def __init__(self, **settings: Any) -> None: ...
    def __len__(self) -> int: ...
    def __getattr__(self, name: str) -> Any: ...

class RobertaConfig(PreTrainedConfig):
    def __init__(self, **settings: Any) -> None: ...

AutoConfig: Any
AutoModel: Any
AutoModelForImageClassification: Any
AutoModelForSequenceClassification: Any
AutoTokenizer: Any
RobertaForSequenceClassification: Any
