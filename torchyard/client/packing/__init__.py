"""Packs the code of a folder into a bundle: one tar that has the same bytes for the same files on every machine."""
