"""The service for code packages: people put theirs and fetch theirs, a job fetches its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

import grpc

from scheduler.access.authentication import Authenticator
from scheduler.api.grpc_server import is_insecure, token_of
from scheduler.api.seats import Seats
from scheduler.core.errors import Forbidden, NotFound, Rejected
from scheduler.core.model import JobId
from scheduler.packages import manifest
from scheduler.packages.store import Missing, PackageStore, StoredPackage, gone
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

ORIGIN_BYTES_MAX = 384 * 1024  # of what git says of a package
MESSAGE_BYTES = 512 * 1024  # of the contents in one message


@dataclass(frozen=True, slots=True)
class PackageService(pb_grpc.PackagesServicer):
    store: PackageStore
    people: Authenticator
    admins: frozenset[str]
    job_of: Callable[[str], JobId | None]  # the live job of a token
    package_of: Callable[[JobId], str]  # of a live job; empty: it has none
    seats: Seats = field(default_factory=Seats)

    def StorePackage(
        self, request: pb.StorePackageRequest, context: grpc.ServicerContext
    ) -> pb.StorePackageReply:
        size = request.origin.ByteSize()
        if size > ORIGIN_BYTES_MAX:
            raise Rejected(f"--code: {size} bytes about its origin, {ORIGIN_BYTES_MAX} at most")
        origin = request.origin.SerializeToString(deterministic=True)
        folder = request.origin.folder
        done = self.store.store(self._user(context), request.package, folder, origin)
        if isinstance(done, Missing):
            return pb.StorePackageReply(manifest_missing=done.manifest, missing=done.lines)
        return pb.StorePackageReply(package=_message(done))

    def PutFiles(
        self, _: object, context: grpc.ServicerContext
    ) -> Generator[None, pb.FileParts | None, pb.PutFilesReply]:
        user = self._user(context)
        with self.seats.taken_by(user):
            putting = self.store.putting(user)
            try:
                while request := (yield):
                    for part in request.parts:
                        putting.part(part.digest, part.size, part.data)
                putting.finish()
                return pb.PutFilesReply(files=putting.files)
            finally:
                putting.close()

    def FindPackage(
        self, request: pb.FindPackageRequest, context: grpc.ServicerContext
    ) -> pb.Package:
        user = self._user(context)
        found = self.store.find(user, request.package)
        return _message(self.store.latest(user, found.id) if request.latest else found)

    def FetchFiles(
        self, request: pb.FetchFilesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.FileParts]:
        user = self._reader(request.package, context)
        with self.seats.taken_by(user):
            entries = self.store.manifest(request.package)
            own = request.package.removeprefix(manifest.PREFIX)
            sizes = {own: self.store.size(own)} | {
                entry.digest: entry.size for entry in entries if entry.digest
            }
            wanted = [digest.hex() for digest in request.digests] or list(sizes)
            for digest in wanted:
                if digest not in sizes:
                    raise Rejected(f"{digest[:12]}: the package has no such content")
            yield from _batches(self._parts(digest, sizes[digest]) for digest in wanted)

    def _parts(self, digest: str, size: int) -> Iterator[pb.FilePart]:
        first = pb.FilePart(digest=bytes.fromhex(digest), size=size)
        try:
            for piece in self.store.content(digest):
                for at in range(0, len(piece), MESSAGE_BYTES):
                    first.data = piece[at : at + MESSAGE_BYTES]
                    yield first
                    first = pb.FilePart()
        except FileNotFoundError:
            raise NotFound(gone(digest)) from None
        if first.digest:
            yield first

    # --- who asks -----------------------------------------------------------------------------

    def _user(self, context: grpc.ServicerContext) -> str:
        return self.people.user(token_of(context), is_insecure(context))

    def _reader(self, package: str, context: grpc.ServicerContext) -> str:
        """Who fetches it: its user, an admin, or a job that has it."""
        if not manifest.is_id(package):
            raise Rejected(f"{package[:80]!r} is not the id of a package (sha256:...)")
        token = token_of(context) or ""
        if job_id := self.job_of(token):
            if self.package_of(job_id) != package:
                raise Forbidden(f"job {job_id} has another package, or none")
            return f"job {job_id}"
        user = self._user(context)
        if user not in self.admins:
            self.store.check(user, package)
        return user


def _batches(files: Iterable[Iterable[pb.FilePart]]) -> Iterator[pb.FileParts]:
    """As few messages as possible: a package has many small files."""
    batch, size = pb.FileParts(), 0
    for parts in files:
        for part in parts:
            if size and size + len(part.data) + 64 > MESSAGE_BYTES:
                yield batch
                batch, size = pb.FileParts(), 0
            batch.parts.append(part)
            size += len(part.data) + 64
    if size:
        yield batch


def _message(stored: StoredPackage) -> pb.Package:
    return pb.Package(id=stored.id, files=stored.files, bytes=stored.size)
