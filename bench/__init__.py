"""The service's figures, each beside a peer in the same run: `python -m bench`, or one, as `python -m bench.start`."""
