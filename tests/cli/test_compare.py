from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scheduler.v1 import scheduler_pb2 as pb
from tests.cli.conftest import Command, Done
from tests.gateway.series.delivering import entries, metric
from tests.gateway.serving_http import Gateway
from tests.serving import Serving


def trained(server: Serving, pages: Gateway, name: str, *records: Any, **spec: Any) -> str:
    """A job whose relay has delivered this."""
    job_id = server.submit(name, held=True, **spec)
    with pages.client(server.job(job_id).token) as client:
        query: dict[str, Any] = {"attempt": 1, "spool": "s", "first": 0}
        answer = client.post("/api/v1/tracking", params=query, content=entries(*records))
        assert answer.json()["refused"] == 0
    return job_id


def run(server: Serving, pages: Gateway, name: str, lr: float, loss: float, **spec: Any) -> str:
    points = [metric("loss", 2 * loss, 1), metric("loss", loss, 20), metric("loss", 1.5 * loss, 30)]
    params = {"lr": lr, "net": {"depth": 3, "kind": "resnet"}, "batch": "64"}
    return trained(server, pages, name, {"params": params}, {"points": points}, **spec)


def rows(done: Done) -> dict[str, list[str]]:
    """The words of each row, by the first of them."""
    assert (done.exit_code, done.err) == (0, ""), done.err
    found = [line.strip().split("  ") for line in done.out.splitlines() if line.strip()]
    return {
        words[0].strip(): [each.strip() for each in words[1:] if each.strip()] for words in found
    }


def test_only_what_differs_is_shown(server: Serving, pages: Gateway, command: Command) -> None:
    ids = [run(server, pages, f"run-{n}", 10.0**-n, n / 10) for n in (1, 2)]
    found = rows(command("scheduler-compare", "run-1", "run-2"))
    assert found["id"] == [each[-8:] for each in ids]
    assert found["param.lr"] == ["0.1", "0.01"]
    assert found["loss last"] == ["0.15", "0.3"]
    assert found["loss min (best)"] == ["0.1 at 20", "0.2 at 20"]
    assert found["code"] == ["no package"]
    assert "param.net.depth" not in found
    assert "the same in all: " in " ".join(found)


def test_sections_are_chosen(server: Serving, pages: Gateway, command: Command) -> None:
    for n in (1, 2, 3):
        run(server, pages, f"run-{n}", 10.0**-n, n / 10)
    config = rows(command("scheduler-compare", "run-1", "run-2", "run-3", "--config", "--all"))
    assert config["param.net.kind"] == ["resnet"] * 3
    assert config["param.batch"] == ["64"] * 3
    assert "loss last" not in config
    metrics = rows(command("scheduler-compare", "run-1", "run-2", "--metrics"))
    assert ("loss last" in metrics, "param.lr" in metrics) == (True, False)
    assert command("scheduler-compare", "run-1", "run-2", "--code").out == "code  no package\n"


def test_identical_jobs_have_no_differences(
    server: Serving, pages: Gateway, command: Command
) -> None:
    ids = [run(server, pages, "same", 0.1, 0.5) for _ in range(2)]
    done = command("scheduler-compare", *ids)
    assert (done.exit_code, done.out, done.err) == (0, "no differences\n", "")
    done = command("scheduler-compare", ids[0], ids[0])
    assert (done.exit_code, done.out) == (0, "no differences: these are one job\n")


def test_jobs_are_selected_by_experiment_and_label(
    server: Serving, pages: Gateway, command: Command
) -> None:
    labels = [pb.KeyValue(key="sweep", value="7")]
    for n in (1, 2):
        run(server, pages, f"run-{n}", 10.0**-n, 0.5, experiment="e1", labels=labels)
    run(server, pages, "bobs", 0.5, 0.5, experiment="e1", user="bob")
    by_experiment = command("scheduler-compare", "--experiment", "e1", "--output", "json")
    assert [job["name"] for job in json.loads(by_experiment.out)["jobs"]] == ["run-1", "run-2"]
    assert command("scheduler-compare", "--label", "sweep=7").out.split()[:2] == ["run-1", "run-2"]
    everybody = command("scheduler-compare", "--experiment", "e1", "--all_users")
    assert rows(everybody)["user"] == ["ada", "ada", "bob"]


def test_a_page_is_written_that_needs_nothing_else(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    for n in (1, 2):
        run(server, pages, f"run-{n}", 10.0**-n, n / 10)
    file = tmp_path / "report.html"
    done = command("scheduler-compare", "run-1", "run-2", "--html", str(file))
    assert (done.exit_code, done.out, done.err) == (0, f"{file}\n", "")
    assert file.read_text().count('<path class="curve') == 2
    nowhere = command("scheduler-compare", "run-1", "run-2", "--html", "/nowhere/x.html")
    assert (nowhere.exit_code, "cannot write /nowhere/x.html" in nowhere.err) == (1, True)


def test_what_cannot_be_compared_is_told(server: Serving, pages: Gateway, command: Command) -> None:
    server.submit("only", held=True, experiment="e1")
    for words, told in (
        ((), "JOB is missing"),
        (("only",), "'only' is the only one"),
        (("only", "no-such-job"), "no job matches 'no-such-job'"),
        (("only", "--experiment", "e1"), "exclude each other"),
        (("--experiment", "e2"), "no job matches; --all_users looks at all users'"),
        (("--label", "a=b", "--user", "bob"), "no job matches\n"),
    ):
        done = command("scheduler-compare", *words)
        assert (done.exit_code, done.out) == (2, ""), done.err
        assert told in done.err


def test_without_a_gateway_it_says_so(server: Serving, command: Command) -> None:
    for name in ("a", "b"):
        server.submit(name, held=True)
    done = command("scheduler-compare", "a", "b")
    assert done.exit_code == 4
    assert "has no gateway, which keeps what trainings log" in done.err


def coded(command: Command, server: Serving, code: Path, name: str) -> str:
    package = command("scheduler-upload-code", str(code)).out.strip()
    return server.submit(name, held=True, code=package)


def test_the_diff_of_two_packages_is_shown(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    code = tmp_path / "vision"
    code.mkdir()
    (code / "train.py").write_text("import lib\nlr = 0.1\n")
    (code / "same.py").write_text("same\n")
    (code / "gone.py").write_text("gone\n")
    (code / "weights").write_bytes(b"\0\1")
    (code / "link").symlink_to("same.py")
    coded(command, server, code, "old")
    (code / "train.py").write_text("import lib\nlr = 0.2\n")
    (code / "gone.py").unlink()
    (code / "empty.py").touch()
    (code / "weights").write_bytes(b"\0\1\2")
    (code / "same.py").chmod(0o755)
    (code / "link").unlink()
    (code / "link").symlink_to("train.py")
    coded(command, server, code, "new")
    done = command("scheduler-compare", "old", "new", "--code")
    assert (done.exit_code, done.err) == (0, "")
    first, _, title, *diff = done.out.splitlines()
    assert first.startswith("code  ")
    assert title.startswith("old (")
    assert diff == [
        "empty.py is new, and empty",
        *("--- a/gone.py", "+++ /dev/null", "@@ -1 +0,0 @@", "-gone"),
        *("- link is a link to same.py", "+ link is a link to train.py"),
        "same.py is now executable",
        *("--- a/train.py", "+++ b/train.py", "@@ -1,2 +1,2 @@", " import lib"),
        *("-lr = 0.1", "+lr = 0.2"),
        "weights differs: 2 bytes, 3 bytes",
    ]
    coded(command, server, code, "again")
    alike = command("scheduler-compare", "new", "again", "--code").out
    assert alike.startswith("code  the same package, ")
    assert alike.count("\n") == 1


def test_a_package_that_is_gone_is_said_and_the_rest_is_still_printed(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    code = tmp_path / "vision"
    code.mkdir()
    for name in ("one", "two", "three"):
        (code / "train.py").write_text(f"name = {name!r}\n")
        coded(command, server, code, name)
    two = next(job for job in server.scheduler.view.jobs.values() if job.spec.name == "two")
    server.wall.ahead = 1e9
    server.packages.collect(lambda job_id: job_id != two.id)
    done = command("scheduler-compare", "one", "two", "three", "--config", "--code")
    assert done.exit_code == 0
    assert f"cannot be compared: package {two.spec.code[7:19]}: you have no such" in done.out
    assert "+name = 'three'" in done.out


def test_packages_of_others_are_not_shown(
    server: Serving, pages: Gateway, command: Command, tmp_path: Path
) -> None:
    code = tmp_path / "vision"
    code.mkdir()
    for name in ("one", "two"):
        (code / "train.py").write_text(f"secret = {name!r}\n")
        coded(command, server, code, name)
    done = command("scheduler-compare", "one", "two", "--code", user="eve")
    assert "secret" not in done.out
    assert "you have no such package here" in done.out
    assert (
        "+secret = 'two'" in command("scheduler-compare", "one", "two", "--code", user="root").out
    )
