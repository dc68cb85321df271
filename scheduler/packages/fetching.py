"""Fetches the package of a job: `python3 -m scheduler.packages.fetching`, before its training.

Its settings are JSON in a variable, and the job's token is in another one. It tries again as long
as the daemon cannot be reached, and exits with AGAIN if that lasts too long: then the run is
repeated. Any other failure is final, and its last line says why.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from scheduler.packages import manifest
from scheduler.packages.manifest import BadPackage
from scheduler.packages.unpacking import Unpacking, discard
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

SETTINGS, TOKEN = "EPOCH_SCHEDULER_CODE", "KUBEPROFILER_TOKEN"
AGAIN, REFUSED = 75, 1  # exit codes; EX_TEMPFAIL
PATIENCE_SECONDS = 300.0  # in which the daemon may be away
PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0)
_PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED", "UNKNOWN")


def main(environ: Mapping[str, str]) -> int:
    os.umask(0o022)
    told: dict[str, Any] = json.loads(environ[SETTINGS])
    began, tries = time.monotonic(), 0
    while True:
        try:
            fetch(told["server"], environ[TOKEN], told["package"], told["folder"], told["folders"])
            return 0
        except grpc.RpcError as error:
            status, why = error.code().name, error.details() or error.code().name
            if status not in _PASSING:
                return _end(REFUSED, why)
            if time.monotonic() - began > PATIENCE_SECONDS:
                return _end(AGAIN, why)
        except BadPackage as error:
            return _end(REFUSED, str(error))
        except OSError as error:  # the node's disk may be full
            return _end(AGAIN, f"{error.filename or told['folder']}: {error.strerror}")
        time.sleep(PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)])
        tries += 1


def fetch(server: str, token: str, package: str, folder: str, folders: Mapping[str, str]) -> None:
    """Makes the folder. Raises RpcError, BadPackage or OSError, and then it is not there."""
    discard(folder)
    Path(folder).mkdir(mode=0o755)
    options = (("grpc.enable_http_proxy", 0), ("grpc.keepalive_time_ms", 20_000))
    try:
        with grpc.insecure_channel(server, options=options) as channel:
            stub = pb_grpc.PackagesStub(channel)
            request = pb.FetchFilesRequest(package=package)
            metadata = (("authorization", f"Bearer {token}"),)
            _unpack(
                _Contents(stub.FetchFiles(request, metadata=metadata)), package, folder, folders
            )
    except BaseException:
        discard(folder)
        raise


def _unpack(contents: _Contents, package: str, folder: str, folders: Mapping[str, str]) -> None:
    listed = bytearray()
    if contents.begin() != package.removeprefix(manifest.PREFIX):
        raise BadPackage("its manifest did not come first")
    for piece in contents.pieces():
        listed += piece
        if len(listed) > manifest.MANIFEST_BYTES_MAX:
            raise BadPackage("its manifest is too long")
    if manifest.package_id(bytes(listed)) != package:
        raise BadPackage("its manifest is damaged")
    work = Unpacking(folder, manifest.decode(bytes(listed)))
    try:
        while digest := contents.begin():
            work.write(digest, contents.pieces())
        work.finish(folders)
    finally:
        work.close()


class _Contents:
    """The contents of files, one after the other, from a stream of their parts."""

    def __init__(self, messages: Iterator[pb.FileParts]) -> None:
        self._parts = (part for message in messages for part in message.parts)
        self._next: pb.FilePart | None = next(self._parts, None)

    def begin(self) -> str:
        """The hash of the next content; empty: there is none."""
        return self._next.digest.hex() if self._next else ""

    def pieces(self) -> Iterator[bytes]:
        while self._next:
            yield self._next.data
            self._next = next(self._parts, None)
            if self._next and self._next.digest:
                return


def _end(exit_code: int, why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main(os.environ))
