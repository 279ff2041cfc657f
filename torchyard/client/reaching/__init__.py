"""The client's end of a reach: what a user has started in a running job, over a connection that may be cut."""
