"""Events, metrics, lines and stacks that a job stores while it runs."""
