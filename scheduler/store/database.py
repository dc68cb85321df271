"""The database file: creates, opens and checks it, and explains its errors.

Its content is the subject of writer.py and reader.py.
"""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database

from scheduler.core.errors import ConfigError, InvariantError, SchedulerError, Unavailable
from scheduler.store.migrations import APPLICATION_ID, migrations

BUSY_SECONDS = 10.0  # the longest that one writer waits for another; maintenance is short
BACKUPS = "backups"  # the folder beside the database


def connect(path: Path) -> sqlite3.Connection:
    """Opens an existing file for writing. The caller begins and ends transactions."""
    db = _connect(path, "rw")
    db.execute("pragma synchronous = full")
    db.execute("pragma foreign_keys = on")
    db.execute("pragma cache_size = -16000")  # KiB: the rows of 10,000 live jobs
    return db


def connect_readonly(path: Path) -> sqlite3.Connection:
    db = _connect(path, "ro")
    db.execute("pragma query_only = on")
    return db


def open_or_create(path: Path) -> sqlite3.Connection:
    """Opens the database for the only writer, with the newest schema."""
    with translate_errors(path):
        if not path.exists():
            _create(path)
        db = connect(path)
        try:
            _check(db, path)
            migrations.apply(Database(db, execute_plugins=False))
            db.execute("pragma journal_mode = wal")
        except (KeyError, ValueError, TypeError) as error:  # sqlite_utils: the schema is not ours
            db.close()
            raise damage_error(path, "damaged (its list of migrations)") from error
        except BaseException:
            db.close()
            raise
    return db


def open_in_memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.deserialize(_empty_database())
    db.execute("pragma foreign_keys = on")
    return db


@contextmanager
def translate_errors(path: Path | None) -> Iterator[None]:
    """Translates errors of SQLite and of the file system into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def explain(error: sqlite3.Error, path: Path | None) -> SchedulerError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of the bits is detail
    match code:
        case sqlite3.SQLITE_CONSTRAINT | sqlite3.SQLITE_MISMATCH:
            return InvariantError(f"{path}: an invalid row: {error}")
        case sqlite3.SQLITE_FULL:
            return Unavailable(f"{path}: the disk is full; nothing was written: free disk space")
        case sqlite3.SQLITE_IOERR:
            return Unavailable(
                f"{path}: {error}; nothing was written: is the disk full or failing?"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(f"{path}: another program has locked it; nothing was written")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return ConfigError(
                f"{path}: {error}: may the daemon write to this file and its folder?"
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_ERROR:
            # An error in our SQL: the schema is not the one that our migrations made.
            return damage_error(path, str(error).splitlines()[0])
        case _:
            return Unavailable(f"{path}: {error}")


def damage_error(path: Path | None, what: str) -> ConfigError:
    folder = path.parent / BACKUPS if path else BACKUPS
    name = path.name if path else ""
    return ConfigError(
        f"{path}: {what}: move {name}* away and copy the newest file of {folder} here as {name}"
    )


def run_check(db: sqlite3.Connection, check: str) -> str | None:
    """Returns in one line what one of SQLite's checks finds; None: nothing."""
    (found,) = db.execute(f"pragma {check}").fetchone()
    return None if found == "ok" else str(found).splitlines()[-1]


def sync_folder(folder: Path) -> None:
    """Syncs a folder: the names of files are on disk only after their folder is."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@functools.cache
def _empty_database() -> bytes:
    """Returns a database with the whole schema and no rows."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrations.apply(Database(db, execute_plugins=False))
    content = db.serialize()
    db.close()
    return content


def _create(path: Path) -> None:
    """Writes it under another name first, so that the file is complete whenever it exists."""
    log = path.with_name(path.name + "-wal")
    if log.exists():  # SQLite would apply it to any file with this name
        raise damage_error(path, f"it is missing, but its log {log.name} exists")
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(_empty_database())
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, but not always the same
    )
    # Damaged text must not prevent a query from reading the other rows, and the message of such an
    # error would quote the text.
    db.text_factory = _decode_text
    return db


def _decode_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _check(db: sqlite3.Connection, path: Path) -> None:
    (mark,) = db.execute("pragma application_id").fetchone()
    if mark != APPLICATION_ID:
        what = "not a database of epoch-scheduler" if path.stat().st_size else "empty"
        raise damage_error(path, what)
    with Database(memory=True, execute_plugins=False) as nothing:
        ours = {step.name for step in migrations.pending(nothing)}
    for step in migrations.applied(Database(db, execute_plugins=False)):
        if step.name not in ours:
            raise ConfigError(
                f"{path}: written by a newer version ({step.name!r}): install that version"
            )
    # Decisions depend only on jobs. The rest is ten times as big, and each backup checks it.
    found = run_check(db, "quick_check(jobs)")
    if found:
        raise damage_error(path, f"damaged ({found})")
