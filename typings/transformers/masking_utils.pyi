from collections.abc import Callable

from torch import Tensor

find_packed_sequence_indices: Callable[[Tensor], Tensor | None]
