"""Reads the scalars of TensorBoard's event files, which an attempt writes without knowing of Torchyard."""
