"""Files that a job leaves: checkpoints, artifacts and kept files."""
