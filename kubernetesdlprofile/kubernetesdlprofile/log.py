"""The library's warnings in the training's output."""

_said = {""}  # kinds of trouble already reported


def warn(text: str, kind: str = "") -> None:
    """Writes one line with the prefix that users search for, and only one for each `kind` of
    trouble, to stderr unless logging is set up. Never raises: stderr may be closed."""
    from contextlib import suppress  # these two are slow to import and rarely needed

    if (kind or text) in _said:
        return
    _said.add(kind or text)
    with suppress(Exception):
        import logging

        log = logging.getLogger("kubernetesdlprofile")
        line = "".join(c if c.isprintable() else " " for c in text)[:500]
        log.warning("[KUBE_API_LIBRARY] %s", " ".join(line.split()))
