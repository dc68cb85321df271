"""Lines as squeue and sacct print them. Those of 22.05 were recorded from a real one; the others
are written after the documents of these versions, and are for the parsing alone."""

from __future__ import annotations

import pytest

from cli.slurm.slurm_queue import is_ended, is_pending, read_accounts, read_queue, reason_in_words

ID = "123e4567-e89b-42d3-a456-426614174000"
RUNNING = (
    "7|RUNNING|None|1795179697|1795183297|1795179690|ada|n[0-1]|gres:gpu:a100:2"
    f"|epoch-scheduler:{ID}|na|me\n"
)


def test_a_line_of_squeue_is_read_whatever_the_name_of_the_job() -> None:
    (row,) = read_queue(f"squeue: warning: something\n{RUNNING}")
    assert (row.number, row.state, row.user, row.nodes) == ("7", "RUNNING", "ada", "n[0-1]")
    assert (row.submitted_at, row.starts_at, row.ends_at) == (1795179690, 1795179697, 1795183297)
    assert (row.job_id, row.name) == (ID, "na|me")


@pytest.mark.parametrize(
    "line",
    [
        # 20.11 and 22.05: no TRES; 23.02 and later: `gres/gpu`; 24.05: a reason in brackets.
        f"8|PENDING|Priority|N/A|N/A|1795179690|ada||gpu:1|epoch-scheduler:{ID}|j",
        f"8|PENDING|(Priority)|N/A|NONE|1795179690|ada||gres/gpu:1|epoch-scheduler:{ID}|j",
        f"8_3|PENDING|Priority|Unknown|NONE|1795179690|ada||gres:gpu:1|epoch-scheduler:{ID}|j",
    ],
)
def test_moments_that_are_not_known_are_none(line: str) -> None:
    (row,) = read_queue(line)
    assert (row.starts_at, row.ends_at, row.reason, row.job_id) == (0.0, 0.0, "Priority", ID)


def test_jobs_of_others_have_no_id_of_ours() -> None:
    lines = (
        "1|RUNNING|None|1|2|3|ada|n0||(null)|j\n2|RUNNING|None|1|2|3|ada|n0||epoch-scheduler:x|j"
    )
    assert [row.job_id for row in read_queue(lines)] == ["", ""]


def test_lines_of_sacct_are_read() -> None:
    text = (
        "7|COMPLETED|0:0|1795179697|1795179700|n0|None\n"
        "8|CANCELLED by 1000|0:15|1795179697|1795179700|n0|None\n"
        "9|OUT_OF_MEMORY|0:125|1795179697|1795179700|n0|None\n"
        "9.batch|OUT_OF_MEMORY|0:125|1795179697|1795179700|n0|None\n"
        "10|FAILED|3:0|Unknown|Unknown|None assigned|NonZeroExitCode\n"
        "sacct: error: Slurm accounting storage is disabled\n"
    )
    found = {each.number: each for each in read_accounts(text)}
    assert list(found) == ["7", "8", "9", "10"]
    assert found["8"].state == "CANCELLED"
    assert (found["8"].signal, found["10"].exit_code) == (15, 3)
    assert (found["7"].ended_at, found["10"].ended_at) == (1795179700.0, 0.0)


def test_states_are_live_or_over() -> None:
    over = "COMPLETED FAILED CANCELLED PREEMPTED TIMEOUT NODE_FAIL BOOT_FAIL OUT_OF_MEMORY DEADLINE"
    assert all(is_ended(state) for state in over.split())
    live = "PENDING RUNNING COMPLETING CONFIGURING SUSPENDED REQUEUED SIGNALING STAGE_OUT STOPPED"
    assert not any(is_ended(state) for state in live.split())
    assert is_pending("PENDING")
    assert is_pending("REQUEUED")
    assert not is_pending("RUNNING")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "waits for free resources (Resources)"),
        ("Priority", "jobs with a higher priority come first (Priority)"),
        (
            "QOSMaxGRESPerUser",
            "the limit of its qos for each user on GPUs is reached (QOSMaxGRESPer",
        ),
        ("AssocGrpGRES", "the limit of your account on GPUs is reached (AssocGrpGRES)"),
        ("AssocGrpCpuLimit", "the limit of your account on CPUs is reached (AssocGrpCpuLimit)"),
        ("QOSGrpMemLimit", "the limit of its qos on memory is reached (QOSGrpMemLimit)"),
        ("QOSMaxGRESPerJob", "asks for more GPUs than the limit of its qos allows a job (QOSMax"),
        ("AssocMaxJobsLimit", "the limit of your account on jobs is reached (AssocMaxJobsLimit)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-3]",
            "nodes that it asks for are not available: n[1-3] (ReqNodeNotAvail)",
        ),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority p",
            "nodes that it needs are down, drained or reserved (Resources)",
        ),
        ("SomethingOfTomorrow", "SomethingOfTomorrow"),
        ("", ""),
    ],
)
def test_reasons_are_told_in_words(reason: str, words: str) -> None:
    assert reason_in_words(reason).startswith(words)
