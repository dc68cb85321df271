"""S03: jobs share a GPU as far as its memory permits; --disable_gpu_sharing keeps a job alone."""

from tests.e2e.conftest import Daemons, Gates, Train


def test_memory_bounds_who_shares(daemons: Daemons, gates: Gates, train: Train) -> None:
    daemon, gate = daemons("1x16384"), gates("all")
    base = ["--max_epochs", "2"]
    daemon.submit(*train(gate), *base, "--estimated_memory", "6000", "A")
    daemon.submit(*train(gate), *base, "--estimated_memory", "7000", "B")
    daemon.wait_state(A="RUNNING", B="RUNNING")
    daemon.submit(*train(gate), *base, "--estimated_memory", "4000", "C")
    alone = ["--disable_gpu_sharing", "true", "--estimated_memory", "1000"]
    daemon.submit(*train(gate), *base, *alone, "D")
    waits = daemon.wait(lambda jobs: jobs["C"].reason != "" and jobs["D"].reason.startswith("gpus"))
    assert waits["C"].reason == "memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)"
    assert (
        "pending: memory (needs 4,000 MiB; gpu0 has the most free: 2,872 MiB)"
        in daemon.run("scheduler-state", "C").stdout
    )

    seen: set[frozenset[str]] = set()
    for _ in range(8):
        gate.open()
        state = daemon.state_of("--cluster")
        (gpu,) = state["gpus"]
        seen.add(frozenset(job["name"] for job in gpu["jobs"]))
        assert gpu["reserved_mib"] <= 16384 - 512
    daemon.wait_state(A="FINISHED", B="FINISHED", C="FINISHED", D="FINISHED")
    assert all(names == {"D"} for names in seen if "D" in names)


def test_at_every_instant_of_the_story_the_memory_holds(daemons: Daemons, train: Train) -> None:
    daemon = daemons("2x16384")
    sizes = [6000, 7000, 4000, 9000, 1000, 15000, 3000, 8000]
    ids = [
        daemon.submit(*train(), "--max_epochs", "2", "--estimated_memory", str(mib), f"j{i}")
        for i, mib in enumerate(sizes)
    ]
    daemon.wait(lambda jobs: all(job.state == "FINISHED" for job in jobs.values()))
    changes: list[tuple[float, int, str, int]] = []
    for job_id, mib in zip(ids, sizes, strict=True):
        held = ""
        for fact in daemon.story(job_id):
            if fact.kind == "run_started":
                held = fact.data_json.split('"gpus":"')[1].split(" ")[0]
                changes.append((fact.at, 1, held, mib))
            elif fact.kind == "run_ended":
                changes.append((fact.at, 0, held, -mib))
    used: dict[str, int] = {}
    for _, _, gpu, mib in sorted(changes):
        used[gpu] = used.get(gpu, 0) + mib
        assert used[gpu] <= 16384 - 512
    assert set(used.values()) == {0}


def test_a_job_too_large_for_every_gpu_is_refused(daemons: Daemons, train: Train) -> None:
    daemon = daemons("1x16384")
    done = daemon.run("run-scheduler", *train(), "--estimated_memory", "20000", "big")
    assert done.returncode == 4
    assert "no GPU can hold 20,000 MiB" in done.stderr
    assert daemon.state_of()["jobs"] == []
