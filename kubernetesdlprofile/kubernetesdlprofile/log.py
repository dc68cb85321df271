"""What the library says to whoever reads the training's output, and nothing else."""

import logging

_log = logging.getLogger("kubernetesdlprofile")


def warn(text: str) -> None:
    """One line with the prefix that people search for. Goes to stderr unless logging is set up."""
    _log.warning("[KUBE_API_LIBRARY] %s", text)
