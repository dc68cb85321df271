"""Code packages: what one is, where they are kept, and how one becomes a folder. Standard library
only, except the store: runners and clients use the rest. No cluster, no network."""
