"""A launcher for Hydra, and what it adds to the configuration."""
