"""`volumes` of a workflow and `volumeMounts` of a container become volumes of a job. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from scheduler.workflows.document import Located

KINDS = ("emptyDir", "persistentVolumeClaim", "hostPath")
SHARED_MEMORY = "/dev/shm"

Warn = Callable[[Located, str], None]


def by_name(volumes: Iterable[Located]) -> dict[str, Located]:
    found: dict[str, Located] = {}
    for each in volumes:
        has = each.fields("name", *KINDS)
        kinds = [kind for kind in KINDS if kind in has]
        if "name" not in has or len(kinds) != 1:
            raise each.error(f"needs a name, and one of {', '.join(KINDS)}")
        if has["name"].text() in found:
            raise each.error(f"there are two volumes {has['name'].text()!r}")
        found[has["name"].text()] = each
    return found


def mounted(
    mounts: Iterable[Located], volumes: Mapping[str, Located], warn: Warn
) -> tuple[str, ...]:
    """As `--volume` has them: SRC:DST[:ro]."""
    return tuple(text for each in mounts if (text := _mounted(each, volumes, warn)))


def _mounted(mount: Located, volumes: Mapping[str, Located], warn: Warn) -> str:
    has = mount.fields("name", "mountPath", "subPath", "readOnly")
    if "name" not in has or "mountPath" not in has:
        raise mount.error("needs name and mountPath")
    name, path = has["name"].text(), has["mountPath"].text()
    if name not in volumes:
        raise has["name"].error(f"there is no volume {name!r}")
    of = volumes[name].mapping()
    if "emptyDir" in of:
        if path.rstrip("/") != SHARED_MEMORY:
            words = f"an emptyDir is supported at {SHARED_MEMORY} only; elsewhere, write to /tmp"
            raise has["mountPath"].error(words)
        warn(of["emptyDir"], f"is not used: each job has {SHARED_MEMORY}")
        return ""
    if "hostPath" in of:
        known, key = of["hostPath"].fields("path", "type"), "path"
    else:
        known, key = of["persistentVolumeClaim"].fields("claimName", "readOnly"), "claimName"
    if key not in known:
        raise volumes[name].error(f"{key} is missing")
    below = f"/{has['subPath'].text().strip('/')}" if "subPath" in has else ""
    source = known[key].text().rstrip("/") + below
    if ":" in source or ":" in path:
        raise mount.error("a path must not contain ':'")
    flags = (entry["readOnly"].flag() for entry in (has, known) if "readOnly" in entry)
    return f"{source}:{path}{':ro' if any(flags) else ''}"
