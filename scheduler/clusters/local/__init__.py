"""This machine: child processes and its own GPUs."""
