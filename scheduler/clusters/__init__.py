"""Adapters: what runs a job and reports what is running."""
