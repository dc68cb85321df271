from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from scheduler.presentation.comparison_view import ABSENT
from scheduler.presentation.render import width
from tests.cli.conftest import Command
from tests.cli.test_compare import trained
from tests.gateway.series.delivering import NOW_NS, SECOND, entries, metric
from tests.gateway.serving_http import Gateway
from tests.serving import Serving


def run(server: Serving, pages: Gateway, name: str, factor: float = 1.0) -> str:
    losses = [
        metric("loss", factor * (10 - step), step, NOW_NS + step * SECOND) for step in range(10)
    ]
    tagged = ["test_metric", {"server_name": "my-server"}, "value", NOW_NS, None, 123]
    told = [*losses, metric("acc", 0.5, 9), tagged]
    return trained(server, pages, name, {"points": told})


def test_each_metric_is_shown_with_what_it_has_come_to(
    server: Serving, pages: Gateway, command: Command
) -> None:
    run(server, pages, "demo")
    done = command("scheduler-metrics", "demo")
    assert (done.exit_code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:7] == ["METRIC", "LAST", "STEP", "MIN", "STEP", "MAX", "STEP"]
    assert lines[1][:7] == ["acc", "0.5", "9", "0.5", "9", "0.5", "9"]
    assert lines[2][:7] == ["loss", "1", "9", "1", "9", "10", "0"]
    assert lines[3][:3] == ["test_metric", "123", ABSENT]
    assert max(map(width, done.out.splitlines())) <= 100


def test_metrics_are_chosen_by_name_and_tags(
    server: Serving, pages: Gateway, command: Command
) -> None:
    run(server, pages, "demo")
    done = command("scheduler-metrics", "demo", "--measurement", "test_metric", "--last")
    head, row = (line.split() for line in done.out.splitlines())
    assert head == ["METRIC", "LAST", "STEP", "LOGGED", "POINTS", "TAGS"]
    assert (row[:2], row[-1]) == (["test_metric", "123"], "server_name=my-server")
    tagged = command("scheduler-metrics", "demo", "--tags", "server_name=my-server", "--min")
    assert tagged.out.split()[6:8] == ["test_metric", "123"]
    none = command("scheduler-metrics", "demo", "--measurement", "^l$")
    assert (none.exit_code, none.out) == (1, "")
    assert none.err == (
        "scheduler-metrics: no metric of 'demo' is like that; there are acc, loss, test_metric\n"
    )


def test_several_jobs_stand_beside_each_other(
    server: Serving, pages: Gateway, command: Command
) -> None:
    ids = [run(server, pages, "same", factor) for factor in (1, 2)]
    done = command("scheduler-metrics", *ids, "--measurement", "loss", "--max")
    rows = [line.split() for line in done.out.splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        ["loss", "same", ids[0][-8:], "ada", "10"],
        ["loss", "same", ids[1][-8:], "ada", "20"],
    ]


def test_all_points_are_printed_for_people_and_programs(
    server: Serving, pages: Gateway, command: Command
) -> None:
    job_id = run(server, pages, "demo")
    words = ("scheduler-metrics", "demo", "--measurement", "loss", "--all", "--from_step", "7")
    assert [line.split()[1] for line in command(*words).out.splitlines()] == ["STEP", "7", "8", "9"]
    rows = list(csv.DictReader(command(*words, "--csv").out.splitlines()))
    assert [(row["job"], row["step"], row["value"]) for row in rows] == [
        (job_id, str(step), str(10.0 - step)) for step in (7, 8, 9)
    ]
    (curve,) = json.loads(command(*words, "--output", "json").out)["curves"]
    assert curve["values"] == [3.0, 2.0, 1.0]


def test_a_summary_is_printed_for_programs(
    server: Serving, pages: Gateway, command: Command
) -> None:
    job_id = run(server, pages, "demo")
    (row, *_) = csv.DictReader(command("scheduler-metrics", "demo", "--csv").out.splitlines())
    assert (row["job"], row["metric"], row["last"], row["last_step"]) == (job_id, "acc", "0.5", "9")
    (job,) = json.loads(command("scheduler-metrics", "demo", "--output", "json").out)["jobs"]
    assert [each["name"] for each in job["series"]] == ["acc", "loss", "test_metric"]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_a_plot_fits_the_terminal(
    columns: int,
    server: Serving,
    pages: Gateway,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, factor in (("one", 1), ("two", 2)):
        run(server, pages, name, factor)
    monkeypatch.setenv("COLUMNS", str(columns))
    done = command("scheduler-metrics", "one", "two", "--measurement", "loss|test", "--plot")
    assert (done.exit_code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "loss by step"
    assert "  a one\n  b two\n\ntest_metric by time\n" in done.out
    assert max(map(width, done.out.splitlines())) <= columns


def test_a_query_is_answered(server: Serving, pages: Gateway, command: Command) -> None:
    run(server, pages, "demo")
    words = ("scheduler-metrics", "demo", "--sql")
    statement = "SELECT metric, count(*) AS n, avg(value) FROM points WHERE step < 4 GROUP BY 1"
    done = command(*words, statement)
    assert [line.split() for line in done.out.splitlines()] == [
        ["metric", "n", "avg(value)"],
        ["loss", "4", "8.5"],
    ]
    assert command(*words, statement, "--csv").out == "metric,n,avg(value)\nloss,4,8.5\n"
    answer = json.loads(command(*words, "SELECT max FROM series", "--output", "json").out)
    assert answer == {"rows": [{"max": 0.5}, {"max": 10.0}, {"max": 123}]}
    wrong = command(*words, "DROP TABLE points")
    assert (wrong.exit_code, wrong.out) == (2, "")
    assert wrong.err == (
        "scheduler-metrics: --sql: only SELECT is possible, of the tables series and points\n"
    )


def test_an_attempt_is_seen_alone(server: Serving, pages: Gateway, command: Command) -> None:
    run(server, pages, "demo")
    words = ("scheduler-metrics", "demo", "--all", "--csv", "--attempt")
    assert command(*words, "1").out.count("\n") == 13
    assert command(*words, "2").exit_code == 1


def test_what_was_not_kept_is_said(server: Serving, pages: Gateway, command: Command) -> None:
    trained(server, pages, "demo", {"points": [metric("loss", 0.5)]}, {"lost": 2, "why": "a kill"})
    done = command("scheduler-metrics", "demo", "--last")
    assert done.err == "note: demo: 2 points or entries were lost: a kill\n"


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        ((), 2, "JOB is missing: whose metrics?"),
        (("demo", "--measurement", "("), 2, "is no regular expression"),
        (("demo", "--last", "--min"), 2, "not allowed with"),
        (("demo", "--plot", "--csv"), 2, "--plot is for people: leave out --csv"),
        (("demo", "--csv", "--output", "json"), 2, "exclude each other"),
        (("demo", "--from_step", "3"), 2, "--from_step chooses points: give it with --all"),
        (("demo", "--tags", "x"), 2, "must be KEY=VALUE"),
        (("no-such-job",), 2, "no-such-job"),
        (("demo",), 1, "'demo' has logged no metrics"),
    ],
)
def test_what_cannot_be_shown_is_told(
    words: tuple[str, ...],
    exit_code: int,
    told: str,
    server: Serving,
    pages: Gateway,
    command: Command,
) -> None:
    server.submit("demo", held=True)
    done = command("scheduler-metrics", *words)
    assert (done.exit_code, done.out) == (exit_code, "")
    assert told in done.err


def test_the_state_of_a_job_tells_what_was_not_kept(
    server: Serving, pages: Gateway, command: Command
) -> None:
    job = server.running("demo")
    with pages.client(job.token) as client:
        query: dict[str, Any] = {"attempt": 1, "spool": "s", "first": 0}
        client.post("/api/v1/tracking", params=query, content=entries({"lost": 2, "why": "a kill"}))
    told = "not logged      2 points or entries were lost: a kill"
    assert " ".join(told.split()) in " ".join(command("scheduler-state", "demo").out.split())
    pages.process.kill()
    pages.process.wait()
    done = command("scheduler-state", "demo")
    assert (done.exit_code, done.err) == (0, "")
    assert "not logged" not in done.out
