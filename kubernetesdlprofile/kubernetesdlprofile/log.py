"""What the library says to whoever reads the training's output, and nothing else."""

_said = {""}  # kinds of trouble


def warn(text: str, kind: str = "") -> None:
    """One line with the prefix that people search for, and no second one of that kind of trouble.
    Goes to stderr unless logging is set up. Never raises: stderr may be closed."""
    from contextlib import suppress  # these two take long, and are seldom needed

    if (kind or text) in _said:
        return
    _said.add(kind or text)
    with suppress(Exception):
        import logging

        log = logging.getLogger("kubernetesdlprofile")
        line = "".join(c if c.isprintable() else " " for c in text)[:500]
        log.warning("[KUBE_API_LIBRARY] %s", " ".join(line.split()))
