"""The file with the series: its schema, and connections to it.

One thread writes (`series_writer.py`), others read. A commit is on disk when it returns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from scheduler.gateway.series import summaries

NAME = "series.db"
VERSION = 1
CACHE_KIB = 16 * 1024
BUSY_SECONDS = 10.0
READERS_KEPT = 4

# `points` has what is not yet packed. NaN is NULL there, because SQLite knows none.
_SCHEMA = f"""
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    measurement TEXT NOT NULL,
    field TEXT NOT NULL,
    tags TEXT NOT NULL,  -- JSON: sorted pairs
    kind TEXT NOT NULL,{summaries.COLUMNS}
    UNIQUE (job, attempt, measurement, field, tags)
);
CREATE TABLE points (
    series INTEGER NOT NULL,
    at INTEGER NOT NULL,
    step INTEGER NOT NULL,
    value,
    PRIMARY KEY (series, at, step)
) WITHOUT ROWID;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,
    series INTEGER NOT NULL,
    seconds INTEGER NOT NULL,  -- thinned out to one minute, one hour; 0: all points
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    points INTEGER NOT NULL,
    content BLOB NOT NULL,
    minutes BLOB  -- what minutes.py makes of it
);
CREATE INDEX chunks_of_series ON chunks (series, last);
CREATE INDEX chunks_by_age ON chunks (seconds, last);
CREATE TABLE spools (
    job TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    spool TEXT NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (job, attempt, spool)
) WITHOUT ROWID;
CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    points INTEGER NOT NULL DEFAULT 0,
    description TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE pairs (
    job TEXT NOT NULL,
    kind TEXT NOT NULL,  -- params or tags
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job, kind, key)
) WITHOUT ROWID;
CREATE TABLE artifacts (
    job TEXT NOT NULL,
    path TEXT NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (job, path)
) WITHOUT ROWID;
CREATE TABLE troubles (
    job TEXT NOT NULL,
    kind TEXT NOT NULL,  -- refused or lost
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (job, kind, reason)
) WITHOUT ROWID;
"""


class SeriesFileError(Exception):
    """It cannot be used. The message is for an administrator: one line."""


def open_to_write(path: Path) -> sqlite3.Connection:
    """Makes it, if there is none. Raises SeriesFileError."""
    try:
        connection = _connect(path, "rwc")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise SeriesFileError(f"{path} is of a newer version of this program")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if version == 0:
            # In one transaction, so that ^C leaves no half of a schema.
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        path.chmod(0o600)
    except (sqlite3.Error, OSError) as error:
        raise SeriesFileError(f"cannot use {path}: {error}") from error
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


class ReadConnections:
    """Each is used by one thread at a time; a few are kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """All that is read within is of one moment."""
        connection = self._take()
        try:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        if self._idle.qsize() < READERS_KEPT:
            self._idle.put(connection)
        else:
            connection.close()

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            return _connect(self._path, "ro")

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get().close()
