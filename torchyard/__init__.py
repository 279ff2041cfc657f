"""Torchyard: submit distributed PyTorch training jobs to a service that runs, watches and resumes them."""
