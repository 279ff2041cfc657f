"""The rules of the queue on traces of shared clusters, beside those of others: `python -m bench.scheduling`."""
