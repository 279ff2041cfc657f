"""States of checkpoints in files: tensors, and the index that joins several files. Needs torch."""
