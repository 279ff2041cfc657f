"""What users are told of without asking, and where."""
