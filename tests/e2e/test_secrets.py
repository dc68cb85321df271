"""A secret reaches its training, and nothing else that can be read."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons

VALUE, OTHER = "kept-to-themselves", "as-is-this"


def test_a_secret_reaches_the_training_after_a_restart_and_no_one_else(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{OTHER}\n")
    monkeypatch.setenv("API_KEY", VALUE)
    flags = ("--num_gpus", "0", "--hold", "--secret", "API_KEY", "--secret", f"OTHER={file}")
    given = ("sh", "-c", "test ${#API_KEY} = 18 && test ${#OTHER} = 10 && echo known")
    daemon = daemons("0")
    trial = daemon.run("run-scheduler", "--dry_run", *flags, "held", "--", *given)
    assert "API_KEY=(secret)" in trial.stdout
    job_id = daemon.submit(*flags, "held", "--", *given)
    daemon.kill()
    daemon.start()
    daemon.run("scheduler-update-job", job_id, "--release")
    daemon.wait_state(held="FINISHED")
    assert daemon.run("scheduler-get-logs", job_id).stdout == "known\n"
    told = [
        trial.stdout,
        daemon.run("scheduler-state", job_id, "--output", "json").stdout,
        daemon.run("scheduler-state", job_id, "--extended").stdout,
        daemon.run("scheduler-admin", "--state_dir", daemon.state, "backup").stdout,
        daemon.said(),
    ]
    assert not [text for text in told if VALUE in text or OTHER in text]
    having = [
        path.relative_to(daemon.state).parts[0]
        for path in daemon.state.rglob("*")
        if path.is_file() and any(word in path.read_bytes() for word in (b"kept-to", b"as-is"))
    ]
    assert set(having) <= {"secrets"}


def test_a_secret_without_a_value_is_refused_in_one_line(daemons: Daemons) -> None:
    daemon = daemons("0")
    for flag, words in (
        ("NO_SUCH_VARIABLE", "--secret NO_SUCH_VARIABLE: export the variable"),
        ("KEY=/nowhere", "--secret KEY: /nowhere: No such file"),
    ):
        done = daemon.run("run-scheduler", "--secret", flag, "j", "--", "true")
        assert done.returncode == 2
        assert words in done.stderr
