"""`torchyard up`: starts the whole service on one machine, and keeps it running."""
