"""Beside a training: hears what it logs, keeps it on disk, and forwards it to the gateway. Standard
library only, and nothing else of ours."""
