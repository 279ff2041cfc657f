# The names of transformers that we use. Its own `__init__` takes the type checker longer than a fifth of our code.
from pathlib import Path
from typing import Any

from torch import nn

class PreTrainedConfig:
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class PreTrainedModel(nn.Module):
    all_tied_weights_keys: dict[str, str]
    base_model: nn.Module
    base_model_prefix: str
    config: PreTrainedConfig
    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, Any]) -> None: ...
    def get_output_embeddings(self) -> nn.Module: ...
    def tie_weights(self) -> None: ...

class TokenizersBackend:
    def __init__(self, **settings: Any) -> None: ...
    def __len__(self) -> int: ...
    def __getattr__(self, name: str) -> Any: ...
    @classmethod
    def from_pretrained(cls, folder: Path, *, local_files_only: bool, trust_remote_code: bool) -> TokenizersBackend: ...

class RobertaConfig(PreTrainedConfig):
    def __init__(self, **settings: Any) -> None: ...

AutoConfig: Any
AutoModel: Any
AutoModelForCausalLM: Any
AutoModelForImageClassification: Any
AutoModelForSequenceClassification: Any
AutoTokenizer: Any
GenerationConfig: Any
RobertaForSequenceClassification: Any
