"""The database file: made, opened, checked, and explained to a person when something is wrong.

What is in it is the business of writer.py (the writer) and reader.py.
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

BUSY_SECONDS = 10.0  # the longest that one writer waits for another; housekeeping is short
BACKUPS = "backups"  # the folder beside the database


def connect(path: Path) -> sqlite3.Connection:
    """For writing. The file must be there. Transactions are begun and ended by hand."""
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
    """For the one writer, with the newest schema."""
    with translate_errors(path):
        if not path.exists():
            _create(path)
        db = connect(path)
        try:
            _check(db, path)
            migrations.apply(Database(db, execute_plugins=False))
            db.execute("pragma journal_mode = wal")
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
    """Errors of SQLite and of the file system, as ours."""
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
            return InvariantError(f"{path}: a row that must not be: {error}")
        case sqlite3.SQLITE_FULL:
            return Unavailable(f"{path}: the disk is full; nothing was written: make room")
        case sqlite3.SQLITE_IOERR:
            return Unavailable(
                f"{path}: {error}; nothing was written: is the disk full or failing?"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(f"{path}: another program keeps it locked; nothing was written")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return ConfigError(f"{path}: {error}: may we write to it and to its folder?")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return damage_error(path, str(error))
        case _:
            return Unavailable(f"{path}: {error}")


def damage_error(path: Path | None, what: str) -> ConfigError:
    folder = path.parent / BACKUPS if path else BACKUPS
    name = path.name if path else ""
    return ConfigError(
        f"{path}: {what}: move {name}* away and copy the newest file of {folder} here as {name}"
    )


def run_check(db: sqlite3.Connection, check: str) -> str | None:
    """What one of SQLite's checks finds wrong, in a line."""
    (found,) = db.execute(f"pragma {check}").fetchone()
    return None if found == "ok" else str(found).splitlines()[-1]


def sync_folder(folder: Path) -> None:
    """Names of files are on disk only when their folder is."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@functools.cache
def _empty_database() -> bytes:
    """A database with the whole schema and no rows."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrations.apply(Database(db, execute_plugins=False))
    content = db.serialize()
    db.close()
    return content


def _create(path: Path) -> None:
    """Under another name first: whoever finds the file finds all of it, whenever we are killed."""
    log = path.with_name(path.name + "-wal")
    if log.exists():  # SQLite would apply it to whatever file has this name
        raise damage_error(path, f"it is gone, but its log {log.name} is there")
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(_empty_database())
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # one at a time, but not always the same
    )


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
                f"{path}: written by a newer epoch-scheduler ({step.name!r}): install that one"
            )
    # Decisions rest on jobs alone. The rest is ten times as much, and read through by each backup.
    found = run_check(db, "quick_check(jobs)")
    if found:
        raise damage_error(path, f"damaged ({found})")
