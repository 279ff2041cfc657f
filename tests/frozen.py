"""Imported last by the server of `tests.forks`: its forks do not search through what it has imported, or copy it."""

import gc

gc.collect()
gc.freeze()
