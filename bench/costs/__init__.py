"""The costs of the largest inputs, each at its limit: see `bench.costs.__main__`."""
