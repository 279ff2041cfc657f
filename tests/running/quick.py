"""Says what the quick run is, which `make test` does."""

import pytest

QUICK = "not thorough and not slurm"
"""The marks of its tests."""


def runs_all(config: pytest.Config) -> bool:
    """Says whether all quick tests are run, and nothing else."""
    narrowed = ("keyword", "lf", "deselect", "ignore", "ignore_glob", "shard", "collectonly", "maxfail")
    return (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and config.getoption("markexpr") == QUICK
        and not any(config.getoption(name, default=None) for name in narrowed)
    )
