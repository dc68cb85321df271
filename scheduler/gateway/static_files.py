"""The files of the pages, as they are in the wheel: no build, and nothing from elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from scheduler.gateway.problems import Problem

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
_COMPRESSED = ("text/", "application/json", "application/manifest+json", "image/svg+xml")
_NO_FILES = (".py", ".md")


class _File(NamedTuple):
    changed: int
    content: bytes
    compressed: bytes | None
    tag: str
    type: str


class StaticFiles:
    """Serves the files that were there at the start, so no path leads elsewhere."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._paths = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix not in _NO_FILES
        }
        self._files = {name: _read(path) for name, path in self._paths.items()}

    def serve(self, name: str, request: Request, status: int = 200) -> Response:
        file = self._files.get(name)
        if file is None:
            raise Problem(404, f"there is no file {name!a}")
        file = self._files[name] = _renewed(self._paths[name], file)
        headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == file.tag and status == 200:
            return Response(status_code=304, headers=headers)
        content = file.content
        if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            content, headers["Content-Encoding"] = file.compressed, "gzip"
        return Response(content, status, headers, file.type)


def _read(path: Path) -> _File:
    content = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    kind = kind or "application/octet-stream"
    shrinks = kind.startswith(_COMPRESSED)
    return _File(
        path.stat().st_mtime_ns,
        content,
        gzip.compress(content, 9, mtime=0) if shrinks else None,
        f'"{hashlib.sha256(content).hexdigest()[:20]}"',
        kind,
    )


def _renewed(path: Path, file: _File) -> _File:
    """Reads it again if an upgrade, or whoever works on the pages, has changed it."""
    try:
        return file if path.stat().st_mtime_ns == file.changed else _read(path)
    except OSError:
        return file  # after the rights of root were given up, it may be out of reach
