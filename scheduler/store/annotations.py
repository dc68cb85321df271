"""Annotations: what people write on jobs by a key, such as a note or a star, also on ended ones.

No decision looks at them, so they are not part of a job and do not pass the loop. Only the daemon
writes them, so those of all jobs are kept in memory beside the table.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from scheduler.core.errors import Rejected
from scheduler.core.model import JobId
from scheduler.store import database

KEYS_MAX, KEY_MAX, VALUE_MAX = 20, 100, 1000  # of a job; characters
_ALL = "select job_id, key, value from annotations order by job_id, key"
_SET = "insert or replace into annotations (job_id, key, value) values (?, ?, ?)"
_REMOVE = "delete from annotations where job_id = ? and key = ?"


class Annotations:
    """For any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, str]] = {}
        with database.translate_errors(path), closing(database.connect_readonly(path)) as db:
            for job_id, key, value in db.execute(_ALL):
                self._known.setdefault(job_id, {})[key] = value

    def of(self, job_id: JobId) -> Mapping[str, str]:
        """In the order of the keys. Is not changed later."""
        return self._known.get(job_id, {})

    def change(self, job_id: JobId, changes: Mapping[str, str]) -> None:
        """An empty value removes a key. Raises Rejected, and then changes nothing."""
        check(changes)
        with self._lock:
            after = {**self.of(job_id), **changes}
            after = {key: after[key] for key in sorted(after) if after[key]}
            if len(after) > KEYS_MAX:
                raise Rejected(
                    f"--annotate: a job has at most {KEYS_MAX} annotations; KEY= removes one"
                )
            with database.translate_errors(self._path), closing(database.connect(self._path)) as db:
                db.execute("begin immediate")
                for key, value in changes.items():
                    if value:
                        db.execute(_SET, (job_id, key, value))
                    else:
                        db.execute(_REMOVE, (job_id, key))
                db.execute("commit")
            self._known[job_id] = after


def check(changes: Mapping[str, str]) -> None:
    for key, value in changes.items():
        if not (0 < len(key) <= KEY_MAX and key.isprintable() and "=" not in key):
            raise Rejected(
                f"--annotate {key[:KEY_MAX]!r}: a key has 1 to {KEY_MAX} printable characters, and"
                " no `=`"
            )
        if len(value) > VALUE_MAX:
            raise Rejected(
                f"--annotate {key}: the text has {len(value)} characters, {VALUE_MAX} at most"
            )
        if not value.replace("\n", "").isprintable():
            raise Rejected(f"--annotate {key}: the text has characters that cannot be printed")
