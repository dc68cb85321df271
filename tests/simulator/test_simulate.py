"""The command: its output, its messages and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.simulate import main, parser

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
        said.append(path.read_text())
    assert said[0] == said[1]


def test_a_limit_takes_the_first_jobs(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*words(trace, report="json"), "--limit", "2"])
    jobs = json.loads(capsys.readouterr().out)["results"][0]["jobs"]
    assert [job["name"] for job in jobs] == ["a", "b"]


def test_flags_are_spelt_with_either_line(trace: Path) -> None:
    options = parser().read([*words(trace), "--plan-every=5", "--restart-seconds", "7"])
    assert (options.plan_every, options.restart_seconds) == (5.0, 7.0)


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
        ("policy", "fifo,fifo", "--policy: a value is given twice"),
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
