"""What the two ends of a connection into a running job say to each other: nothing in it does I/O."""
