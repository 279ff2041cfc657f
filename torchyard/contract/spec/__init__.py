"""The job spec: what a user may ask for."""
