"""The JSON of the REST interface: what requests answer. One module an area."""
