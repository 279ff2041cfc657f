"""The waiting jobs, and what a stop of the running ones would cost."""
