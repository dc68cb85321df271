"""NVML: which GPUs this machine has, and how much of them each process uses. No rules about jobs:
what follows from the measurements is decided in core/watchdog.py."""
