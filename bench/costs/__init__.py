"""What the largest inputs cost, each at its limit: see `bench.costs.__main__`."""
