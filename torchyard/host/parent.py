"""The parent of this process."""

import signal

from torchyard.host.inspection import prctl

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals) -> None:
    """Has the kernel send this process a signal when its parent ends, however that ends.

    See PR_SET_PDEATHSIG in prctl(2). A parent that has ended already sends none: compare `os.getppid()` afterwards. A
    fork does not inherit it. Raises OSError.
    """
    prctl(_PR_SET_PDEATHSIG, number)
