"""Jobs: their lists, their changes, and how they are submitted."""
