"""Placeholder pods that reserve GPUs, so that the cluster gives them to nobody else."""
