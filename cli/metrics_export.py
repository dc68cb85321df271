"""What jobs have logged, for other programs: CSV, Parquet, the layout of an MLflow file store."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from cli.command import UsageError
from scheduler.presentation.metrics_view import of_curve, points_rows
from scheduler.presentation.records import Record

EXPERIMENT = "0"
_FINISHED, _LOCAL = 3, 4  # numbers of MLflow


def write_csv(path: Path, jobs: Sequence[Record], curves: Sequence[Record]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(points_rows(jobs, curves))


def write_parquet(path: Path, jobs: Sequence[Record], curves: Sequence[Record]) -> None:
    """A column for numbers and one for texts: a column has one type."""
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"--export {path}: pyarrow is not installed; .csv needs nothing") from None
    columns, *rows = points_rows(jobs, curves)
    table = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    values = table.pop("value")
    table["value"] = [_number(value) for value in values]
    table["text"] = [value if _is_text(value) else None for value in values]
    schema = pyarrow.schema(
        [
            *((name, pyarrow.string()) for name in ("job", "job_name", "metric")),
            ("step", pyarrow.int64()),
            ("time", pyarrow.float64()),
            ("value", pyarrow.float64()),
            ("text", pyarrow.string()),
        ]
    )
    parquet.write_table(pyarrow.table(table, schema=schema), path, compression="zstd")


def write_mlflow(
    folder: Path,
    job: Record,
    record: Record,
    curves: Sequence[Record],
    artifact: Callable[[str], bytes],
) -> Path:
    """Returns the folder of the run, which is new. `artifact`: the bytes of one, by its path."""
    run_id = job["job"].replace("-", "")
    run: Path = folder / EXPERIMENT / run_id
    if run.exists():
        raise UsageError(f"--export {folder}: {run} is there already")
    for kind in ("metrics", "params", "tags", "artifacts"):
        (run / kind).mkdir(parents=True)
    times = [at for curve in curves for at in curve["times"]]
    started, ended = (int(1e3 * of(times)) if times else 0 for of in (min, max))
    _keep_experiment(folder, started)
    for curve in curves:
        lines = [
            f"{int(1e3 * at)} {_mlflow_number(value)} {0 if step is None else step}\n"
            for at, step, value in of_curve(curve)
            if not _is_text(value)
        ]
        if lines:
            _write(run / "metrics", curve["name"], "".join(lines))
    for name, text in record["params"].items():
        _write(run / "params", name, text)
    notes = {"mlflow.note.content": record["description"]} if record["description"] else {}
    named = {"mlflow.runName": job["job_name"], "mlflow.user": job["user"]}
    for name, text in {**record["tags"], **named, **notes}.items():
        _write(run / "tags", name, text)
    for each in record["artifacts"]:
        place = _inside(run / "artifacts", each["path"])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(artifact(each["path"]))
    _write_yaml(
        run / "meta.yaml",
        artifact_uri=(run / "artifacts").absolute().as_uri(),
        end_time=ended,
        entry_point_name="",
        experiment_id=EXPERIMENT,
        lifecycle_stage="active",
        run_id=run_id,
        run_name=job["job_name"],
        run_uuid=run_id,
        source_name="",
        source_type=_LOCAL,
        source_version="",
        start_time=started,
        status=_FINISHED,
        tags=[],
        user_id=job["user"],
    )
    return run


def _keep_experiment(folder: Path, created: int) -> None:
    meta = folder / EXPERIMENT / "meta.yaml"
    if not meta.exists():
        _write_yaml(
            meta,
            artifact_location=(folder / EXPERIMENT).absolute().as_uri(),
            creation_time=created,
            experiment_id=EXPERIMENT,
            last_update_time=created,
            lifecycle_stage="active",
            name="Default",
        )


def _write_yaml(path: Path, **values: object) -> None:
    """JSON's texts, numbers and lists are YAML's."""
    lines = (f"{name}: {json.dumps(value)}\n" for name, value in values.items())
    path.write_text("".join(lines), encoding="utf-8")


def _write(folder: Path, name: str, text: str) -> None:
    place = _inside(folder, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def _inside(folder: Path, name: str) -> Path:
    """Names are those of the training: none leads out of the folder."""
    parts = [part.replace("\0", "_") for part in name.split("/")]
    return folder.joinpath(*("_" if part in ("", ".", "..") else part for part in parts))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity")


def _number(value: object) -> float | None:
    return None if _is_text(value) else float(value)  # type: ignore[arg-type]  # JSON


def _mlflow_number(value: object) -> str:
    return repr(float(value))  # type: ignore[arg-type]  # a number, a boolean, or `NaN` and the like
