"""Packs the code of a folder into a bundle: one tar that has the same bytes for the same files on every machine."""

from torchyard.client.packing.bundle import MAX_SIZE, Bundle, pack

__all__ = ["MAX_SIZE", "Bundle", "pack"]
