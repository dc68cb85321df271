"""Runs that other programs have recorded, as entries: a run of an MLflow file store, an offline run
of wandb, TensorBoard's event files, CSV. Files are only read.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cli.command import UsageError
from scheduler.relay.entries import DESCRIPTION_MAX
from scheduler.relay.event_files import EventFile
from scheduler.relay.file_records import DamagedFile, FileRecords, RecordReader, shortened
from scheduler.relay.wandb_files import WandbFile

PORTION_BYTES = 4 * 2**20
NOTES = "mlflow.note.content"
_EVENTS, _WANDB, _META = "*tfevents*", "*.wandb", "meta.yaml"
_STEPS, _TIMES = ("step", "_step"), ("time", "_timestamp", "wall time")
_LONG = {"metric", "value"}  # the columns of a table with one value in each row
_OURS = ("job", "job_name")  # columns of `--csv` that are no metrics


class ImportedRun:
    """What a path has; `skipped` counts what cannot be taken, by reason, as it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped: Counter[str] = Counter()

    def entries(self) -> Iterator[bytes]:
        """Raises UsageError, OSError."""
        path = self.path
        if path.is_file():
            yield from self._file(path)
            return
        if not path.is_dir():
            raise UsageError(f"--import {path}: there is no such file or folder")
        if _is_run(path):
            yield from self._mlflow(path)
            return
        runs = sorted(each.parent for each in path.rglob(_META) if _is_run(each.parent))
        offline = sorted(path.rglob(_WANDB))
        events = sorted(path.rglob(_EVENTS), key=_by_age)
        if len(runs) + len(offline) > 1:
            listed = "\n".join(f"  {each}" for each in [*runs, *offline][:20])
            raise UsageError(
                f"--import {path}: there are {len(runs) + len(offline)} runs, and a job is one of "
                f"them:\n{listed}"
            )
        for run in runs:
            yield from self._mlflow(run)
        for file in offline:
            yield from self._records(file, WandbFile(1))
        if not runs and not offline:
            if not events:
                raise UsageError(
                    f"--import {path}: neither a run of MLflow or wandb nor an event file of "
                    "TensorBoard is there; a CSV file is named itself"
                )
            for file in events:
                name = str(file.parent.relative_to(path))
                yield from self._records(file, EventFile("" if name == "." else name))

    def _file(self, path: Path) -> Iterator[bytes]:
        if path.match(_WANDB):
            yield from self._records(path, WandbFile(1))
        elif path.match(_EVENTS):
            yield from self._records(path, EventFile(""))
        elif path.suffix.lower() == ".csv":
            yield from self._csv(path)
        else:
            raise UsageError(
                f"--import {path}: is no .csv, no .wandb and no event file of TensorBoard"
            )

    def _taken(self, found: FileRecords) -> list[bytes]:
        found.close_points()
        self.skipped.update(found.skipped)
        return found.entries

    # --- event files, offline runs --------------------------------------------------------------

    def _records(self, path: Path, reader: RecordReader) -> Iterator[bytes]:
        offset, portion = 0, PORTION_BYTES
        with path.open("rb") as file:
            while True:
                file.seek(offset)
                data = file.read(portion)
                try:
                    found = reader.read(data, offset)
                except DamagedFile as error:
                    yield from self._taken(error.before)
                    self.skipped[f"{path.name}: {error}: nothing behind it is read"] += 1
                    return
                yield from self._taken(found)
                offset += found.consumed
                if len(data) < portion:
                    if offset < file.seek(0, 2):
                        self.skipped[f"{path.name}: its end is not whole"] += 1
                    return
                portion = max(PORTION_BYTES, found.wanted) if found.consumed else 2 * portion

    # --- MLflow ---------------------------------------------------------------------------------

    def _mlflow(self, run: Path) -> Iterator[bytes]:
        found = FileRecords()
        for file in _files(run / "metrics"):
            name = str(file.relative_to(run / "metrics"))
            for line in file.read_text(encoding="utf-8").splitlines():
                try:
                    at_ms, value, *step = line.split()
                    at_ns = int(float(at_ms)) * 10**6
                    found.add_point({}, name, at_ns, int(step[0]) if step else None, float(value))
                except (ValueError, OverflowError):
                    self.skipped[f"metrics/{name}: a line that is no value of a metric"] += 1
            yield from self._taken(found)
            found = FileRecords()
        for kind in ("params", "tags"):
            pairs = {
                str(file.relative_to(run / kind)): file.read_text(encoding="utf-8")
                for file in _files(run / kind)
            }
            if notes := pairs.pop(NOTES, "") if kind == "tags" else "":
                found.add_description(shortened(notes, DESCRIPTION_MAX))
            if pairs:
                found.add_pairs(kind, pairs)
        yield from self._taken(found)

    # --- CSV ------------------------------------------------------------------------------------

    def _csv(self, path: Path) -> Iterator[bytes]:
        """Without a column of times, points have that of the file."""
        found, at_ns = FileRecords(), path.stat().st_mtime_ns
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            columns = {name.strip().lower(): name for name in rows.fieldnames or ()}
            step_of = next((columns[name] for name in _STEPS if name in columns), None)
            time_of = next((columns[name] for name in _TIMES if name in columns), None)
            apart = {step_of, time_of, *(columns[name] for name in _OURS if name in columns)}
            for number, row in enumerate(rows):
                try:
                    step = int(float(row[step_of])) if step_of and row[step_of] else None
                    at = _nanoseconds(row[time_of]) if time_of and row[time_of] else at_ns
                except (ValueError, OverflowError):
                    self.skipped["a row whose step or time is no number"] += 1
                    continue
                if step is None and not time_of:
                    step = number
                for name, text in self._values(row, columns, apart, path.stem):
                    found.add_point({}, name, at, step, _value(text))
                if len(found.entries) >= 100:
                    yield from self._taken(found)
                    found = FileRecords()
        yield from self._taken(found)

    def _values(
        self, row: Mapping[str, Any], columns: Mapping[str, str], apart: set[str | None], stem: str
    ) -> Iterator[tuple[str, str]]:
        if columns.keys() >= _LONG:
            yield row[columns["metric"]] or stem, row[columns["value"]] or ""
        elif "value" in columns and len(columns) <= 3:  # as TensorBoard's page saves one metric
            yield stem, row[columns["value"]] or ""
        else:
            for name, text in row.items():
                if name is None:
                    self.skipped["a row with more values than columns"] += 1
                elif name not in apart and text:
                    yield name, text


def _is_run(folder: Path) -> bool:
    kinds = ("metrics", "params")
    return (folder / _META).is_file() and any((folder / kind).is_dir() for kind in kinds)


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def _by_age(path: Path) -> tuple[int, str]:
    """The names of event files have a time."""
    found = re.search(r"tfevents\.(\d{1,12})", path.name)
    return int(found[1]) if found else 0, str(path)


def _nanoseconds(text: str) -> int:
    seconds = float(text)
    if not 0 <= seconds < 2**33:
        raise ValueError(text)
    return round(seconds * 1e6) * 1000


def _value(text: str) -> float | bool | str:
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        whole = int(word)
        return whole if abs(whole) < 2**63 else float(whole)
    except (ValueError, OverflowError):
        pass
    try:
        return float(word)
    except ValueError:
        return text


def counted(entry: bytes) -> Counter[str]:
    """How many points, params and tags it has."""
    told: dict[str, Any] = json.loads(entry)
    return Counter({kind: len(told[kind]) for kind in ("points", "params", "tags") if kind in told})
