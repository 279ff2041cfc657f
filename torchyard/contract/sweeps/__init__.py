"""A job spec, what varies of it, and its trials."""
