"""Pictures, histograms, tables, texts and confusion matrices that a run shows."""
