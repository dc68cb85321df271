"""Where sets of objects are, and by which keys: a user's file with a section `s3`, in the format
that programs with MinIO share as creds.yaml. Its other sections are not looked at."""

from __future__ import annotations

import argparse
import os
import stat
from typing import Any, NamedTuple

from cli.command import UsageError, parse_bool
from cli.contexts import context_file
from cli.contexts.context_file import guess, read_own, shown

FILE = "creds.yaml"
_KEYS = (
    *("name", "type", "address", "access key", "secret key"),
    *("tls", "cert verify", "cert path", "region", "sets"),
)


class S3Set(NamedTuple):
    name: str
    store: str
    bucket: str
    prefix: str  # "" or ends with "/"
    address: str  # "": Amazon's
    access_key: str
    secret_key: str
    tls: bool
    cert_verify: bool
    cert_path: str
    region: str

    @property
    def url(self) -> str | None:
        return f"http{'s' if self.tls else ''}://{self.address}" if self.address else None


def default_file() -> str:
    return os.path.join(os.path.dirname(context_file.path()), FILE)


def find(name: str, file: str) -> S3Set:
    """The set `NAME`, or `STORE.NAME` if several stores have such a one. Raises UsageError."""
    sets = read(file)
    found = [each for each in sets if name in (each.name, f"{each.store}.{each.name}")]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(f"s3://{each.store}.{each.name}" for each in found)
        raise UsageError(f"s3://{name}: several stores have this set: {names}")
    known = [each.name for each in sets]
    raise UsageError(
        f"no set {name!r}{guess(name, known)}; {shown(file)} has {', '.join(known) or 'none'}"
    )


def read(file: str) -> list[S3Set]:
    import yaml  # type: ignore[import-untyped]  # slow

    text = read_own(file)
    if text is None:
        raise UsageError(f"{shown(file)}: No such file: it says where the sets of s3:// are")
    if os.stat(file).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"others can read the keys in {shown(file)}: run `chmod 600 {file}`")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{shown(file)}{where}: not YAML") from None  # its text has secrets
    stores = document.get("s3") if isinstance(document, dict) else None
    if not isinstance(stores, list):
        raise UsageError(f"{shown(file)}: it has no list `s3`")
    return [each for index, store in enumerate(stores) for each in _sets(store, index, file)]


def _sets(store: Any, index: int, file: str) -> list[S3Set]:
    name = store.get("name") if isinstance(store, dict) else None
    where = f"{shown(file)}: s3 store {name or index + 1!r}"
    if not isinstance(store, dict):
        raise UsageError(f"{where}: it must be a mapping, KEY: VALUE")
    store = {str(key).replace("_", " "): value for key, value in store.items()}
    for key in store:
        if key not in _KEYS:
            raise UsageError(f"{where}: unknown key {key!r}{guess(key, list(_KEYS))}")
    if not isinstance(store.get("sets"), dict):
        raise UsageError(f"{where}: it has no mapping `sets`")
    address = _text(store, "address", where)
    if "/" in address:
        raise UsageError(f"{where}: address {address!r} must be HOST:PORT; `tls: true` is https")
    found = []
    for each, of in store["sets"].items():
        of = {"bucket": of} if isinstance(of, str) else of
        if not isinstance(of, dict) or not of.get("bucket"):
            raise UsageError(f"{where}: set {str(each)!r} has no bucket")
        prefix = _text(of, "prefix", where).strip("/")
        found.append(
            S3Set(
                name=str(each),
                store=str(name or index + 1),
                bucket=_text(of, "bucket", where),
                prefix=f"{prefix}/" if prefix else "",
                address=address,
                access_key=_text(store, "access key", where),
                secret_key=_text(store, "secret key", where),
                tls=_bool(store, "tls", not address, where),
                cert_verify=_bool(store, "cert verify", True, where),
                cert_path=os.path.expanduser(_text(store, "cert path", where)),
                region=_text(store, "region", where) or "us-east-1",
            )
        )
    return found


def _text(of: dict[str, Any], key: str, where: str) -> str:
    value = of.get(key)
    if isinstance(value, (dict, list)):
        raise UsageError(f"{where}: {key} must be a text")
    return "" if value is None else str(value)


def _bool(of: dict[str, Any], key: str, default: bool, where: str) -> bool:
    value = of.get(key)
    try:
        return default if value is None else parse_bool(str(value))
    except argparse.ArgumentTypeError:
        raise UsageError(f"{where}: {key} must be true or false") from None
