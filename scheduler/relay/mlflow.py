"""MLflow's REST interface, as far as a training needs it: answered at once from what it has told.

Whatever is kept becomes an entry. What is not here is refused by name (501); what MLflow would only
store beside a run (datasets, models) is accepted and dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from scheduler.relay import mlflow_search
from scheduler.relay.entries import TEXT_MAX, BadEntry, check_name
from scheduler.relay.http import Incoming, Response
from scheduler.relay.mlflow_runs import LoggedMetric, LoggedRun, LoggedRuns

ROOTS = ("/api/2.0/mlflow/", "/ajax-api/2.0/mlflow/")
DESCRIPTION = "mlflow.note.content"
POINTS_MAX = 500  # in one entry
RESULTS_MAX = 1000

Body = Mapping[str, Any]
Keep = Callable[[Sequence[bytes]], object]


class NotServed(Exception):
    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status, self.code = status, code


class Mlflow:
    def __init__(self, runs: LoggedRuns, keep: Keep, lose: Callable[[int, str], None]) -> None:
        """`keep` is given entries; `lose` is told of what cannot become one."""
        self._runs, self._keep, self._lose = runs, keep, lose
        self._calls: dict[tuple[str, str], Callable[[Body, int], object]] = {
            ("GET", "experiments/get-by-name"): self._get_by_name,
            ("GET", "experiments/get"): self._get_experiment,
            ("GET", "experiments/search"): self._search_experiments,
            ("POST", "experiments/search"): self._search_experiments,
            ("POST", "experiments/create"): self._create_experiment,
            ("POST", "runs/create"): self._create_run,
            ("GET", "runs/get"): self._get_run,
            ("POST", "runs/update"): self._update_run,
            ("POST", "runs/search"): self._search_runs,
            ("POST", "runs/log-batch"): self._log_batch,
            ("POST", "runs/log-metric"): self._log_metric,
            ("POST", "runs/log-parameter"): self._log_parameter,
            ("POST", "runs/set-tag"): self._set_tag,
            ("POST", "runs/delete-tag"): self._delete_tag,
            ("GET", "metrics/get-history"): self._get_history,
            ("GET", "artifacts/list"): lambda body, now: {"root_uri": "", "files": []},
            **{
                ("POST", path): lambda body, now: {}
                for path in ("runs/log-inputs", "runs/log-model", "runs/outputs")
            },
            ("POST", "experiments/set-experiment-tag"): lambda body, now: {},
        }

    def answer(self, request: Incoming, path: str, now_ms: int) -> Response:
        """`path`: below one of ROOTS."""
        call = self._calls.get((request.method, path))
        try:
            if call is None:
                words = f"{request.method} {path[:100]} is not in this scheduler's MLflow interface"
                raise NotServed(501, "NOT_IMPLEMENTED", words)
            return Response.json(call(_body(request), now_ms))
        except NotServed as refusal:
            told = {"error_code": refusal.code, "message": str(refusal)}
            return Response.json(told, refusal.status)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told = {"error_code": "INVALID_PARAMETER_VALUE", "message": f"{path}: {error!r}"[:300]}
            return Response.json(told, 400)

    # --- experiments ------------------------------------------------------------------------

    def _get_by_name(self, body: Body, now_ms: int) -> object:
        found = self._runs.experiment_id(str(body["experiment_name"]))
        if found is None:
            raise _missing(f"no experiment is called {str(body['experiment_name'])[:100]!r}")
        return {"experiment": self._experiment(found)}

    def _get_experiment(self, body: Body, now_ms: int) -> object:
        if body["experiment_id"] not in self._runs.experiments:
            raise _missing(f"there is no experiment {str(body['experiment_id'])[:100]!r}")
        return {"experiment": self._experiment(body["experiment_id"])}

    def _search_experiments(self, body: Body, now_ms: int) -> object:
        return {"experiments": [self._experiment(id) for id in self._runs.experiments]}

    def _create_experiment(self, body: Body, now_ms: int) -> object:
        return {"experiment_id": self._runs.create_experiment(str(body["name"]))}

    def _experiment(self, id: str) -> object:
        return {
            "experiment_id": id,
            "name": self._runs.experiments[id],
            "artifact_location": "mlflow-artifacts:/",
            "lifecycle_stage": "active",
        }

    # --- runs -------------------------------------------------------------------------------

    def _create_run(self, body: Body, now_ms: int) -> object:
        tags = _pairs(body.get("tags", ()))
        name = str(body.get("run_name") or tags.get("mlflow.runName", ""))
        run = self._runs.create(
            str(body.get("experiment_id", "0")), name, str(body.get("user_id", "")), now_ms
        )
        if run is None:
            raise NotServed(400, "RESOURCE_LIMIT_EXCEEDED", "a job cannot have so many runs")
        self._keep_pairs(run, "tags", tags)
        return {"run": _shown(run)}

    def _get_run(self, body: Body, now_ms: int) -> object:
        run = self._run(body)
        if run is self._runs.own:
            self._runs.continue_own()
        return {"run": _shown(run)}

    def _update_run(self, body: Body, now_ms: int) -> object:
        run = self._run(body)
        run.status = str(body.get("status") or run.status)
        run.name = str(body.get("run_name") or run.name)
        if body.get("end_time"):
            run.ended_at_ms = int(body["end_time"])
        self._runs.changed()
        return {"run_info": _info(run)}

    def _search_runs(self, body: Body, now_ms: int) -> object:
        experiments = [str(id) for id in body.get("experiment_ids", ())]
        text = str(body.get("filter") or "")
        try:
            found = [
                run
                for run in self._runs
                if run.experiment_id in experiments and mlflow_search.matches(run, text)
            ]
        except mlflow_search.BadFilter as error:
            raise NotServed(400, "INVALID_PARAMETER_VALUE", str(error)) from error
        most = min(int(body.get("max_results") or RESULTS_MAX), RESULTS_MAX)
        newest = sorted(found, key=lambda run: run.started_at_ms, reverse=True)
        return {"runs": [_shown(run) for run in newest[:most]]}

    def _run(self, body: Body) -> LoggedRun:
        id = str(body.get("run_id") or body.get("run_uuid") or "")
        run = self._runs.all.get(id)
        if run is None:
            raise _missing(f"this job has no run {id[:100]!r}")
        return run

    # --- what is logged ---------------------------------------------------------------------

    def _log_batch(self, body: Body, now_ms: int) -> object:
        run = self._run(body)
        self._keep_metrics(run, body.get("metrics") or (), now_ms)
        self._keep_pairs(run, "params", _pairs(body.get("params") or ()))
        self._keep_pairs(run, "tags", _pairs(body.get("tags") or ()))
        return {}

    def _log_metric(self, body: Body, now_ms: int) -> object:
        self._keep_metrics(self._run(body), (body,), now_ms)
        return {}

    def _log_parameter(self, body: Body, now_ms: int) -> object:
        self._keep_pairs(self._run(body), "params", _pairs((body,)))
        return {}

    def _set_tag(self, body: Body, now_ms: int) -> object:
        self._keep_pairs(self._run(body), "tags", _pairs((body,)))
        return {}

    def _delete_tag(self, body: Body, now_ms: int) -> object:
        self._run(body).tags.pop(str(body["key"]), None)
        self._runs.changed()
        return {}

    def _get_history(self, body: Body, now_ms: int) -> object:
        key = str(body["metric_key"])
        every = self._runs.history(self._run(body), key)
        begin = int(body.get("page_token") or 0)
        most = min(int(body.get("max_results") or RESULTS_MAX), 25_000)
        told: dict[str, object] = {
            "metrics": [_metric(key, each) for each in every[begin : begin + most]]
        }
        if begin + most < len(every):
            told["next_page_token"] = str(begin + most)
        return told

    def _keep_metrics(self, run: LoggedRun, metrics: Sequence[Body], now_ms: int) -> None:
        """The client waits meanwhile, and there may be a thousand: so points are written as JSON
        here."""
        heads, tags = dict[str, str](), json.dumps(self._tags(run))
        points = []
        for each in metrics:
            key, value = str(each["key"]), float(each.get("value", 0.0))
            timestamp, step = int(each.get("timestamp") or now_ms), int(each.get("step") or 0)
            head = heads.get(key)
            if head is None:
                try:
                    check_name(key, "metric")
                except BadEntry as error:
                    self._lose(1, str(error))
                    continue
                head = heads[key] = f'["metrics", {tags}, {json.dumps(key)}, '
            at_ns = self._runs.metric(run, key).add(value, timestamp, step)
            number = repr(value) if isfinite(value) else json.dumps(value)
            points.append(f"{head}{at_ns}, {max(0, step)}, {number}]")
        if points:
            self._keep(
                [
                    f'{{"points": [{", ".join(points[at : at + POINTS_MAX])}]}}'.encode()
                    for at in range(0, len(points), POINTS_MAX)
                ]
            )

    def _keep_pairs(self, run: LoggedRun, kind: str, pairs: dict[str, str]) -> None:
        for key in [*pairs]:
            try:
                check_name(key, kind[:-1])
            except BadEntry as error:
                self._lose(1, str(error))
                del pairs[key]
        if not pairs:
            return
        run.keep(pairs, kind)
        self._runs.changed()
        entries: list[dict[str, object]] = []
        if run is self._runs.own:
            if kind == "tags" and DESCRIPTION in pairs:
                entries.append({"describes": pairs.pop(DESCRIPTION)})
        else:
            pairs = {f"{run.name}/{key}"[:250]: value for key, value in pairs.items()}
        if pairs:
            entries.append({kind: pairs})
        self._keep([json.dumps(entry).encode() for entry in entries])

    def _tags(self, run: LoggedRun) -> dict[str, str]:
        return {} if run is self._runs.own else {"run": run.name[:200]}


def _body(request: Incoming) -> Body:
    if request.method == "GET":
        return request.query
    body = json.loads(request.body or b"{}")
    if not isinstance(body, dict):
        raise TypeError("the body is not a JSON object")
    return body


def _pairs(listed: Sequence[Body]) -> dict[str, str]:
    return {str(each["key"]): _text(str(each.get("value", ""))) for each in listed}


def _text(value: str) -> str:
    whole = value.encode("utf-8", "replace").decode()  # half of a character cannot be stored
    return whole if len(whole) <= TEXT_MAX else f"{whole[: TEXT_MAX - 1]}…"


def _missing(words: str) -> NotServed:
    return NotServed(404, "RESOURCE_DOES_NOT_EXIST", words)


def _metric(key: str, measured: LoggedMetric) -> object:
    value: float | str = measured.value
    if value != value or value in (float("inf"), float("-inf")):
        value = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return {"key": key, "value": value, "timestamp": measured.timestamp, "step": measured.step}


def _shown(run: LoggedRun) -> object:
    return {
        "info": _info(run),
        "data": {
            "metrics": [_metric(key, each) for key, each in run.metrics.items()],
            "params": [{"key": key, "value": value} for key, value in run.params.items()],
            "tags": [{"key": key, "value": value} for key, value in run.tags.items()],
        },
        "inputs": {},
    }


def _info(run: LoggedRun) -> dict[str, object]:
    told: dict[str, object] = {
        "run_id": run.id,
        "run_uuid": run.id,
        "run_name": run.name,
        "experiment_id": run.experiment_id,
        "user_id": run.user,
        "status": run.status,
        "start_time": run.started_at_ms,
        "artifact_uri": f"mlflow-artifacts:/{run.id}",
        "lifecycle_stage": "active",
    }
    if run.ended_at_ms is not None:
        told["end_time"] = run.ended_at_ms
    return told
