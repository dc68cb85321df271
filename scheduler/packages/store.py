"""Where the daemon keeps packages: contents as files named by their hash, and a database that says
whose they are and which jobs need them.

A content counts when its row is committed, and the row is committed after the file is on disk; the
file is removed after the row. So after a crash at any moment there are at most files without a row,
which the next collection removes. Nobody gets a content by knowing its hash: a user holds what this
user has put, even if another user's equal file is stored once for both.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from scheduler.core.errors import Busy, Impossible, NotFound, Rejected
from scheduler.core.model import JobId, Time
from scheduler.packages import manifest, unpacking
from scheduler.packages.manifest import LINK, BadPackage, PackagedFile
from scheduler.store import database

FOLDER_KIND = "folder"  # beside the kinds of manifest.py
FOLDER = "packages"  # of the state folder
CONTENTS, INCOMING, DATABASE = "contents", "incoming", "packages.db"
UNUSED_SECONDS = 86_400.0  # so long is kept what no job refers to
SYNCED_SINGLY_MAX = 32  # more files are synced with all else on their disk
BATCH_FILES, BATCH_BYTES = 2_000, 256 * 2**20  # that become durable together
_MIB = 2**20
_SHORTEST = 4  # characters of an id that may stand for it

_SCHEMA = """
create table contents (digest blob primary key, size integer not null) strict, without rowid;
create table held (
    user text not null, digest blob not null references contents, at real not null,
    primary key (user, digest)
) strict, without rowid;
create index held_by_digest on held (digest);
create table packages (
    user text not null, id blob not null, files integer not null, bytes integer not null,
    at real not null, folder text not null, origin blob not null, primary key (user, id)
) strict, without rowid;
create index packages_by_id on packages (id);
create index packages_by_origin on packages (origin);
create table parts (
    package blob not null, digest blob not null, primary key (package, digest)
) strict, without rowid;
create index parts_by_digest on parts (digest);
create table uses (
    job_id text primary key, user text not null, package blob not null, origin blob not null,
    at real not null
) strict, without rowid;
create index uses_by_package on uses (package, user);
create index uses_by_origin on uses (origin);
create table origins (digest blob primary key, text blob not null) strict, without rowid;
pragma user_version = 1;
"""


@dataclass(frozen=True, slots=True)
class StoredPackage:
    id: str
    files: int
    size: int  # unpacked


@dataclass(frozen=True, slots=True)
class Missing:
    """What is to be put before a package can be stored."""

    manifest: bool
    lines: tuple[int, ...] = ()


class PackageStore:
    """For any thread of one process."""

    def __init__(
        self,
        state_dir: Path,
        now: Callable[[], Time],
        mib_per_user: int,
        no_room: Callable[[], str] = str,
    ) -> None:
        """`no_room`: why nothing more can be stored now; empty: something can."""
        self._folder = state_dir.absolute() / FOLDER
        self.contents = self._folder / CONTENTS
        self.trees = state_dir.absolute() / unpacking.TREES
        self._incoming = self._folder / INCOMING
        self._path = self._folder / DATABASE
        self._now, self._mib, self._no_room = now, mib_per_user, no_room
        self._lock = threading.Lock()  # of changes: files and rows change together
        with database.translate_errors(self._folder):
            for folder in (self._folder, self.contents, self._incoming, self.trees):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self._incoming.iterdir():
                left.unlink()
            self._create()

    # --- storing ------------------------------------------------------------------------------

    def store(
        self, user: str, package: str, folder: str = "", origin: bytes = b""
    ) -> StoredPackage | Missing:
        """Stores a package whose contents this user holds. Raises Rejected, also over the quota.
        `folder` and `origin`: where its files are, and what git says of them."""
        key, text = _key(package), hashlib.sha256(origin).digest()
        with self._lock, self._database() as db:
            now = self._now()
            db.execute("insert or ignore into origins (digest, text) values (?, ?)", (text, origin))
            known = db.execute(_STORE_AGAIN, (now, folder, text, user, key)).fetchone()
            if known:
                return StoredPackage(package, *known)
            if not _holds(db, user, key):
                return Missing(True)
            entries = self.manifest(package)
            self._check_size(db, user, entries)
            missing = tuple(
                line
                for line, entry in enumerate(entries)
                if entry.kind != LINK and not _holds(db, user, bytes.fromhex(entry.digest))
            )
            digests = {bytes.fromhex(entry.digest) for entry in entries if entry.digest} | {key}
            db.executemany(  # what is there stays there until the rest has come
                "update held set at = ? where user = ? and digest = ?",
                [(now, user, digest) for digest in digests],
            )
            if missing:
                return Missing(False, missing)
            stored = StoredPackage(package, len(entries), manifest.total(entries))
            db.execute(
                "insert into packages (user, id, files, bytes, at, folder, origin)"
                " values (?, ?, ?, ?, ?, ?, ?)",
                (user, key, stored.files, stored.size, now, folder, text),
            )
            db.executemany(
                "insert or ignore into parts (package, digest) values (?, ?)",
                [(key, digest) for digest in digests],
            )
            return stored

    def putting(self, user: str) -> Putting:
        """Receives contents from this user."""
        if full := self._no_room():
            raise Busy(full)
        with self._database() as db:
            return Putting(self, user, self._mib * _MIB - _used(db, user))

    def keep(self, user: str, received: Collection[tuple[str, int, Path]]) -> None:
        """Keeps contents that have been received: their hashes, sizes and files."""
        with self._lock, database.translate_errors(self._folder):
            finals = []
            for digest, _, path in received:
                finals.append(final := Path(unpacking.content_path(str(self.contents), digest)))
                final.parent.mkdir(mode=0o700, exist_ok=True)
                path.replace(final)
            self._sync(finals)
            rows = [(bytes.fromhex(digest), size) for digest, size, _ in received]
            with self._database() as db:
                now = self._now()
                db.executemany("insert or ignore into contents (digest, size) values (?, ?)", rows)
                db.executemany(
                    "insert or replace into held (user, digest, at) values (?, ?, ?)",
                    [(user, digest, now) for digest, _ in rows],
                )

    # --- using --------------------------------------------------------------------------------

    def find(self, user: str, beginning: str) -> StoredPackage:
        """The only package of this user whose id begins so."""
        text = beginning.removeprefix(manifest.PREFIX)
        if len(text) < _SHORTEST or not set(text) <= set("0123456789abcdef") or len(text) > 64:
            raise Rejected(
                f"--code {beginning[:80]!r}: is neither a folder nor the beginning of a package's"
                f" id ({_SHORTEST} or more of 0-9 and a-f)"
            )
        low, high = bytes.fromhex(text.ljust(64, "0")), bytes.fromhex(text.ljust(64, "f"))
        with self._database() as db:
            found = db.execute(
                "select id, files, bytes from packages where user = ? and id between ? and ?"
                " limit 2",
                (user, low, high),
            ).fetchall()
        if not found:
            raise NotFound(gone(beginning))
        if len(found) > 1:
            raise Rejected(f"--code {beginning}: several of your packages begin so")
        return StoredPackage(manifest.PREFIX + found[0][0].hex(), *found[0][1:])

    def latest(self, user: str, package: str) -> StoredPackage:
        """The package that this user stored last from the folder of that one."""
        with self._database() as db:
            key, found = _key(package), None
            if row := db.execute(_FOLDER_OF, (user, key)).fetchone():
                found = db.execute(_LATEST, (user, *row)).fetchone()
        if not found:
            raise NotFound(gone(package))
        return StoredPackage(manifest.PREFIX + found[0].hex(), *found[1:])

    def use(self, user: str, package: str, jobs: Collection[JobId]) -> None:
        """Jobs of this user refer to the package from now on. Raises NotFound."""
        key = _key(package)
        with self._lock, self._database() as db:
            now = self._now()
            found = db.execute(_ORIGIN_OF, (user, key)).fetchone()
            if not found:
                raise NotFound(gone(package))
            db.executemany(
                "insert or replace into uses (job_id, user, package, origin, at)"
                " values (?, ?, ?, ?, ?)",
                [(job_id, user, key, *found, now) for job_id in jobs],
            )

    def check(self, user: str, package: str) -> None:
        """Raises NotFound unless this user has the package."""
        with self._database() as db:
            if not db.execute(_HAS, (user, _key(package))).fetchone():
                raise NotFound(gone(package))

    def origin(self, job_id: JobId) -> bytes | None:
        """What was said of the files of this job; None: it has no package any more."""
        with self._database() as db:
            asked = "select text from uses join origins on digest = origin where job_id = ?"
            found = db.execute(asked, (job_id,)).fetchone()
        return found[0] if found else None

    def manifest(self, package: str) -> list[PackagedFile]:
        """Raises NotFound if no user holds it any more, Rejected if it is no manifest."""
        try:
            return unpacking.read_manifest(str(self.contents), package)
        except FileNotFoundError:
            raise NotFound(gone(package)) from None
        except BadPackage as error:
            raise Rejected(f"package {package[:19]}: {error}") from None

    def size(self, digest: str) -> int:
        return Path(unpacking.content_path(str(self.contents), digest)).stat().st_size

    def content(self, digest: str) -> Iterator[bytes]:
        return unpacking.pieces(unpacking.content_path(str(self.contents), digest))

    @lru_cache(maxsize=16)  # noqa: B019 - one store, as long as the daemon
    def kinds(self, package: str) -> Mapping[str, str]:
        """What each path of a package is, and of the folders on the way."""
        found: dict[str, str] = {}
        for entry in self.manifest(package):
            found[entry.path] = entry.kind
            for above in Path(entry.path).parents:
                found[str(above)] = FOLDER_KIND
        return found

    # --- collecting ---------------------------------------------------------------------------

    def collect(self, needs: Callable[[JobId], bool]) -> int:
        """Forgets what no job needs, and what nobody has used for a day. Returns how many contents
        were removed. `needs`: whether this job still needs its package; unknown jobs do not."""
        before = self._now() - UNUSED_SECONDS
        with self._database() as db:
            old = db.execute("select job_id from uses where at < ?", (before,)).fetchall()
        over = [row for row in old if not needs(JobId(row[0]))]
        with self._lock:
            with self._database() as db:
                db.executemany("delete from uses where job_id = ?", over)
                db.execute(_FORGET_PACKAGES, (before,))
                db.execute(_FORGET_ORIGINS)
                db.execute("delete from parts where package not in (select id from packages)")
                db.execute(_FORGET_HELD, (before,))
                unheld = "digest not in (select digest from held)"
                rows = db.execute(f"delete from contents where {unheld} returning digest")
                removed = [digest.hex() for (digest,) in rows]
            for digest in removed:
                with suppress(FileNotFoundError):
                    os.unlink(unpacking.content_path(str(self.contents), digest))  # noqa: PTH108
            self._remove_rowless()
        return len(removed)

    def remove_trees(self, live: Collection[str]) -> None:
        """Removes unpacked packages other than these. A run that starts meanwhile unpacks its
        package again."""
        needed = {package.removeprefix(manifest.PREFIX) for package in live}
        for name in {path.name.partition(".")[0] for path in self.trees.iterdir()}:
            if name[:64] not in needed:
                unpacking.remove_tree(str(self.trees), name)

    def used_bytes(self, user: str) -> int:
        with self._database() as db:
            return _used(db, user)

    def _sync(self, paths: Sequence[Path]) -> None:
        """Returns when these files will survive a power cut."""
        if len(paths) > SYNCED_SINGLY_MAX:
            unpacking.sync(str(self._folder))
            return
        for path in {*paths, *(path.parent for path in paths), self.contents}:
            database.sync_folder(path)

    def _remove_rowless(self) -> None:
        """Removes files of which a crash has prevented the rows."""
        with self._database() as db:
            known = {digest.hex() for (digest,) in db.execute("select digest from contents")}
        for folder in self.contents.iterdir():
            for path in folder.iterdir():
                if path.name not in known:
                    path.unlink(missing_ok=True)

    # --- the database -------------------------------------------------------------------------

    def _create(self) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            db.execute("pragma journal_mode = wal")
            if db.execute("pragma user_version").fetchone()[0] == 0:
                db.executescript(f"begin immediate; {_SCHEMA} commit;")

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """A transaction."""
        with database.translate_errors(self._path), closing(database.connect(self._path)) as db:
            db.execute("begin immediate")
            yield db
            db.execute("commit")

    def _check_size(
        self, db: sqlite3.Connection, user: str, entries: Collection[PackagedFile]
    ) -> None:
        size, most = manifest.total(entries), self._mib * _MIB
        if size > most:
            raise Impossible(
                f"the package has {_mib(size)} unpacked, and the limit is {_mib(most)}"
                " (limits.package_mib_per_user)"
            )


class Putting:
    """Contents on their way from one user. Not for several threads."""

    def __init__(self, store: PackageStore, user: str, left: int) -> None:
        self._store, self._user, self._left = store, user, left
        self._received: list[tuple[str, int, Path]] = []
        self._file: int | None = None
        self._path = Path()
        self._digest, self._size, self._open = "", 0, 0
        self._hash = hashlib.sha256()
        self.files = 0

    def part(self, digest: bytes, size: int, data: bytes) -> None:
        """With the first part of each content come its hash and size. Raises Rejected."""
        if digest:
            self._begin(digest, size)
        if self._file is None:
            raise Rejected("a part of a file came without its hash")
        if len(data) > self._open:
            raise Rejected(f"{self._digest[:12]}: more bytes came than its size says")
        self._open -= len(data)
        self._hash.update(data)
        with database.translate_errors(self._path):
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
        if not self._open:
            self._end()

    def finish(self) -> None:
        """What was received is on disk when this returns."""
        if self._file is not None:
            raise Rejected(f"{self._digest[:12]}: its last {self._open} bytes have not come")
        self._keep()

    def close(self) -> None:
        """What is not finished is forgotten."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._path.unlink(missing_ok=True)
        for _, _, path in self._received:
            path.unlink(missing_ok=True)
        self._received = []

    def _begin(self, digest: bytes, size: int) -> None:
        if self._file is not None:
            raise Rejected(f"{self._digest[:12]}: its last {self._open} bytes have not come")
        if len(digest) != 32:
            raise Rejected("a hash must have 32 bytes")
        self._left -= size
        if self._left < 0:
            raise Impossible(
                f"the packages of {self._user} would have more than {_mib(self._store._mib * _MIB)}"
                " (limits.package_mib_per_user): what no job needs is removed after a day"
            )
        if full := self._store._no_room():
            raise Busy(full)
        self._digest, self._size, self._open = digest.hex(), size, size
        self._hash = hashlib.sha256()
        self._path = self._store._incoming / uuid.uuid4().hex
        with database.translate_errors(self._path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)

    def _end(self) -> None:
        assert self._file is not None
        os.close(self._file)
        self._file = None
        if self._hash.hexdigest() != self._digest:
            self._path.unlink(missing_ok=True)
            raise Rejected(f"{self._digest[:12]}: another content came than its hash says")
        self._received.append((self._digest, self._size, self._path))
        self.files += 1
        if (
            len(self._received) >= BATCH_FILES
            or sum(size for _, size, _ in self._received) >= BATCH_BYTES
        ):
            self._keep()

    def _keep(self) -> None:
        received, self._received = self._received, []
        if received:
            self._store.keep(self._user, received)


def gone(package: str) -> str:
    return (
        f"package {package.removeprefix(manifest.PREFIX)[:12]}: you have no such package here: it"
        " was never uploaded, or no job has needed it any more; scheduler-upload-code uploads it"
    )


def _key(package: str) -> bytes:
    if not manifest.is_id(package):
        raise Rejected(f"--code {package[:80]!r}: is not the id of a package (sha256:...)")
    return bytes.fromhex(package.removeprefix(manifest.PREFIX))


def _holds(db: sqlite3.Connection, user: str, digest: bytes) -> bool:
    asked = "select 1 from held where user = ? and digest = ?"
    return db.execute(asked, (user, digest)).fetchone() is not None


def _used(db: sqlite3.Connection, user: str) -> int:
    asked = "select total(size) from held join contents using (digest) where user = ?"
    return int(db.execute(asked, (user,)).fetchone()[0])


def _mib(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB"


_STORE_AGAIN = """
    update packages set at = ?, folder = ?, origin = ? where user = ? and id = ?
    returning files, bytes
"""
_FOLDER_OF = "select folder from packages where user = ? and id = ? and folder != ''"
_LATEST = """
    select id, files, bytes from packages where user = ? and folder = ? order by at desc limit 1
"""
_ORIGIN_OF = "select origin from packages where user = ? and id = ?"
_FORGET_ORIGINS = """
    delete from origins where digest not in (select origin from uses)
    and digest not in (select origin from packages)
"""
_HAS = "select 1 from packages where user = ? and id = ?"
_FORGET_PACKAGES = """
    delete from packages where at < ? and not exists (
        select 1 from uses where uses.package = packages.id and uses.user = packages.user
    )
"""
_FORGET_HELD = """
    delete from held where at < ? and not exists (
        select 1 from parts join packages on packages.id = parts.package
        where parts.digest = held.digest and packages.user = held.user
    )
"""
