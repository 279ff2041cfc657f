"""Code and data of users, as tars."""
