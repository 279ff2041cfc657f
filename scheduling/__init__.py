"""Decides which job starts where: a pure function of what is known of the cluster at one moment."""
