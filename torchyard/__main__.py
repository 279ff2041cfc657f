"""The start of the `torchyard` command. Until its modules are loaded, Ctrl-C ends it without a word."""

# Not `signal`, which makes its names of them by `enum` first: that takes longer than all else before it.
signals = __import__("_signal")
_OWN = signals.getsignal(signals.SIGINT)
if _OWN is signals.default_int_handler:  # and not ignored, as below nohup
    signals.signal(signals.SIGINT, signals.SIG_DFL)


def main() -> None:
    """Runs the command line and exits."""
    from torchyard.cli import main as run

    signals.signal(signals.SIGINT, _OWN)
    run()


if __name__ == "__main__":
    main()
