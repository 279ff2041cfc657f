from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

class WeightRenaming: ...

def rename_source_key(
    source_key: str,
    weight_renamings: Sequence[WeightRenaming],
    weight_converters: Sequence[Any],
    base_model_prefix: str | None,
    meta_state_dict: Mapping[str, Tensor] | None,
) -> tuple[str, str | None]: ...
