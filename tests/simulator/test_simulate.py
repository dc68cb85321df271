"""The command: its output, its messages and its exit codes."""

from __future__ import annotations

import html
import json
import re
import shlex
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from scheduler.planning.policies import NAMES
from simulator.flags import parser
from simulator.simulate import main, restart_seconds

HEAD = "submit_at,name,gpus_min,gpus_max,memory_mib,epochs,epoch_seconds\n"
ROWS = "0,a,1,1,4000,5,100\n30,b,1,2,4000,3,200\n60,c,1,1,9000,4,50\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "three.csv"
    path.write_text(HEAD + ROWS)
    return path


def words(trace: Path, /, **flags: str) -> list[str]:
    flags = {"trace": str(trace), "cluster": "1x2x16384:t4", "policy": "fifo_sharing", **flags}
    return [f"--{flag}={value}" for flag, value in flags.items()]


def test_it_reports_the_results_of_the_trace(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(trace)) == 0
    said, progress = capsys.readouterr()
    assert said.startswith("three.csv on 1x2x16384:t4 (2 GPUs)")
    assert "\nfifo_sharing     0" in said
    assert "100%, 1 of 1" in progress


@pytest.mark.parametrize("form", ["text", "json", "html"])
def test_the_same_arguments_give_the_same_result(trace: Path, tmp_path: Path, form: str) -> None:
    said = []
    for processes in (1, 2):
        path = tmp_path / f"{processes}.out"
        flags = {"policy": "fifo_sharing,fifo", "report": form, "output": str(path)}
        assert main(words(trace, processes=str(processes), **flags)) == 0
        said.append(re.sub(r"<footer>.*</footer>", "", path.read_text()))
    assert said[0] == said[1]


def test_a_page_says_by_which_command_version_and_day_it_was_made(
    trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "my report.html"
    before = datetime.now(UTC)
    given = words(trace, report="html", output=str(path), seed="3")
    assert main(given) == 0
    (footer,) = re.findall(r"<footer>(.*)</footer>", path.read_text())
    made = re.fullmatch(r"Written on (\S+ \S+) UTC by epoch-scheduler (\S+): (.*)", footer)
    assert made
    written = datetime.strptime(made[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    assert before.replace(second=0, microsecond=0) <= written <= datetime.now(UTC)
    assert made[2] == version("epoch-scheduler")
    assert shlex.split(html.unescape(made[3])) == ["scheduler-simulate", *given]
    assert "Seed 3." in path.read_text()


def test_a_table_of_all_jobs_is_there_if_asked_for(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(trace, policy="fifo"), "--jobs"]) == 0
    table = capsys.readouterr().out.partition("jobs under fifo, seed 0\n")[2].splitlines()
    assert table[0].split()[:3] == ["job", "user", "gpus"]
    # b takes both GPUs and waits for a, which is alone and so has no slowdown.
    rows = [line.split() for line in table[1:]]
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert rows[0][2:] == ["1", "0.000", "0.000", "0.144", "1.00", "0", "0", "succeeded"]
    assert float(rows[1][6]) > 1.5


def test_flags_for_traces_are_refused_for_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag, *value in (["--limit", "3"], ["--seed", "1,2"], ["--timing"], ["--jobs"]):
        assert main(["--replay", str(tmp_path / "scheduler.db"), flag, *value]) == 2
        assert capsys.readouterr().err.startswith(f"scheduler-simulate: {flag} is for traces:")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "--trace, --cluster, --policy are missing; --help shows examples"),
        ("--what_if gpus+4", "--what_if needs --replay STATE_DB"),
        ("--from_start 1 --trace t", "--from_start needs --replay STATE_DB"),
        ("--polcy fifo", "unknown option --polcy; did you mean --policy?"),
        ("week.csv", "unexpected argument 'week.csv'; --help lists the options"),
    ],
)
def test_a_wrong_line_is_explained_in_one_line(
    capsys: pytest.CaptureFixture[str], line: str, complaint: str
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err == f"scheduler-simulate: {complaint}\n"


def test_all_names_every_policy_and_others_may_follow() -> None:
    line = ["--trace=t", "--cluster=2x4x16384", "--policy=all"]
    assert parser().read(line).policy == list(NAMES)


def test_a_limit_takes_the_first_jobs(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*words(trace, report="json"), "--limit", "2"])
    jobs = json.loads(capsys.readouterr().out)["results"][0]["jobs"]
    assert [job["name"] for job in jobs] == ["a", "b"]


def test_flags_are_spelt_with_either_line(trace: Path) -> None:
    options = parser().read([*words(trace), "--plan-every=5", "--restart-seconds", "7"])
    assert (options.plan_every, options.restart_seconds) == (5.0, 7.0)


def test_restarts_cost_more_for_adaptive_jobs_unless_they_are_given() -> None:
    line = ["--trace=t", "--cluster=2x4x16384", "--policy=elastic"]
    costs = [
        restart_seconds(parser().read([*line, *more]))
        for more in ([], ["--sia-jobs=adaptive"], ["--sia-jobs=adaptive", "--restart-seconds=0"])
    ]
    assert costs == [20.0, 58.0, 0.0]


def test_a_trace_whose_jobs_cannot_be_adaptive_is_refused(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(trace), "--sia_jobs", "adaptive"]) == 2
    assert "only the jobs of Sia's traces can be adaptive" in capsys.readouterr().err


def test_a_cluster_needs_no_type() -> None:
    line = ["--trace=t", "--policy=fifo", "--cluster=2x4x16384"]
    nodes = parser().read(line).cluster
    assert [(node.name, node.gpus[0].type) for node in nodes] == [
        ("gpu-000", "gpu"),
        ("gpu-001", "gpu"),
    ]


def test_fifo_goes_by_its_other_name_too() -> None:
    line = ["--trace=t", "--cluster=2x4x16384", "--policy=las,fifo_exclusive"]
    assert parser().read(line).policy == ["las", "fifo"]


def test_nodes_are_named_by_type_and_numbered_on() -> None:
    line = ["--trace=t", "--policy=fifo", "--cluster=1x2x16384:t4,1x8x81920:a100,1x4x16384:t4"]
    nodes = parser().read(line).cluster
    assert [(node.name, len(node.gpus), node.gpus[0].memory_mib) for node in nodes] == [
        ("t4-000", 2, 16384),
        ("a100-000", 8, 81920),
        ("t4-001", 4, 16384),
    ]


@pytest.mark.parametrize(
    ("flag", "value", "complaint"),
    [
        ("policy", "best", "--policy: unknown policy 'best'; known: gpu_sharing,"),
        ("policy", "fifo,fifo", "--policy: fifo is given twice"),
        ("policy", "all,las", "--policy: las is given twice"),
        ("policy", "luck.py", "--policy: luck.py: add the function that makes the policy"),
        ("cluster", "99999x9999x1", "--cluster: '99999x9999x1' has more than 100,000 GPUs"),
        ("data", "/no/such/folder", "--data: '/no/such/folder' is not a folder"),
        ("output", "/", "--output /: this is a folder; name a file in it"),
        ("cluster", "16x4:t4", "--cluster: '16x4:t4' must have the form NODESxGPUSxMIB or NODES"),
        ("cluster", "0x4x16384:t4", "--cluster: '0x4x16384:t4' must have the form"),
        ("seed", "1,x", "--seed: 'x' is not a whole number"),
        ("seed", "", "--seed: '' is not a whole number"),
        ("plan_every", "-1", "--plan_every: -1 must be from 0 to 1000000"),
        ("plan_every", "nan", "--plan_every: nan must be from 0 to 1000000"),
        ("restart_seconds", "soon", "--restart_seconds: 'soon' is not a number"),
        ("limit", "0", "--limit: 0 must be at least 1"),
        ("report", "pdf", "--report: invalid choice: 'pdf'"),
        (
            "output",
            "/no/such/folder/file",
            "--output /no/such/folder/file: the folder does not exist",
        ),
        ("trace", "/no/such/trace", "/no/such/trace: No such file or directory"),
    ],
)
def test_bad_arguments_are_named_in_one_line(
    trace: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str, complaint: str
) -> None:
    assert main(words(trace, **{flag: value})) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"scheduler-simulate: {complaint}")
    assert said.count("\n") == 1


def test_a_malformed_row_is_named_by_file_and_line(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_text(f"{HEAD}{ROWS}90,d,1,1,soon,5,100\n")
    assert main(words(trace)) == 2
    assert capsys.readouterr().err.startswith(f"scheduler-simulate: {trace}:5: memory_mib:")


def test_a_job_that_no_node_can_hold_is_refused_or_left_out(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_text(f"{HEAD}{ROWS}90,wide,4,4,4000,5,100\n")
    assert main(words(trace)) == 4
    why = "job 4 (wide): no node has 4 GPUs; the largest has 2"
    assert capsys.readouterr().err == (
        f"scheduler-simulate: {why}; --skip_impossible leaves out such jobs\n"
    )
    assert main([*words(trace), "--skip_impossible"]) == 0
    assert f"refused: {why}" in capsys.readouterr().out
