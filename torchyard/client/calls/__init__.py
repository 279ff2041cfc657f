"""Every call of the REST interface, as a record that a client sends."""
