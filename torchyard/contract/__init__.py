"""What all programs say to each other: states, specs, events, views, errors, and the run directory."""
