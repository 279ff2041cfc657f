"""Named, versioned checkpoints."""
