"""The start of the `torchyard` command. Until its modules are loaded, Ctrl-C ends it without a word."""

import sys

# Not `signal`, which makes its names of them by `enum` first: that takes longer than all else before it.
signals = __import__("_signal")
_OWN = signals.getsignal(signals.SIGINT)
if _OWN is signals.default_int_handler:  # and not ignored, as below nohup
    signals.signal(signals.SIGINT, signals.SIG_DFL)


def main() -> None:
    """Runs the command line and exits."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:  # without what reads arguments, which takes as long
        from torchyard.contract.wire.version import own_version

        sys.stdout.write(f"torchyard {own_version()}\n")
        return
    from torchyard.cli import main as run

    signals.signal(signals.SIGINT, _OWN)
    run()


if __name__ == "__main__":
    main()
