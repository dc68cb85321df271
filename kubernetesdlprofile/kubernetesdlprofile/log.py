"""What the library says to whoever reads the training's output, and nothing else."""

from contextlib import suppress
from typing import Set

_said: Set[str] = set()


def warn(text: str, kind: str = "") -> None:
    """One line with the prefix that people search for, and no second one of that kind of trouble.
    Goes to stderr unless logging is set up. Never raises: stderr may be closed."""
    if (kind or text) in _said:
        return
    _said.add(kind or text)
    with suppress(Exception):
        import logging  # takes as long as all the rest, and is seldom needed

        log = logging.getLogger("kubernetesdlprofile")
        line = "".join(c if c.isprintable() else " " for c in text)[:500]
        log.warning("[KUBE_API_LIBRARY] %s", " ".join(line.split()))
