"""Says whose workers hold GPUs of this machine, before a service of one's own starts beside them."""

from collections import Counter
from collections.abc import Callable

from torchyard.host import device_locks


def say_who_holds_gpus(say: Callable[[str], None]) -> None:
    """Calls `say` with a sentence for each worker that holds GPUs. The service leaves these GPUs to it."""
    for holder, count in Counter(device_locks.holders().values()).items():
        gpus = f"{count} GPU" if count == 1 else f"{count} GPUs"
        say(f"{gpus} of this machine: in use by {holder}. Jobs get the other GPUs, or CPU slots if there are none.")
