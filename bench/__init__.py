"""The figures of the service, each beside a peer: `python -m bench`, or one of them, as `python -m bench.start`."""
