"""S22: random graphs of steps that give each other data, while the daemon is killed (KILLS=200)."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from tests.e2e.conftest import Daemons

KILLS = int(os.environ.get("KILLS", "3"))
STEPS = 12
SUM = """\
import os, sys
name, log, place, *values = sys.argv[1:]
with open(log, "a") as file:
    file.write(name + "\\n")
parts = [open(f"{place}/in-{name}-{n}").read() for n in range(len(values))]
assert all(part == value * 20000 for part, value in zip(parts, values)), "half an artifact"
total = str(1 + sum(map(int, values)))
open(f"{place}/n-{name}", "w").write(total)
open(f"{place}/big-{name}", "w").write(total * 20000)
"""


def test_no_step_runs_twice_none_is_lost_and_no_output_is_half_written(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemon, chance = daemons("0"), random.Random(int(os.environ.get("SEED", "1")))
    kills, graph = 0, 0
    while kills < KILLS:
        folder = tmp_path / str(graph)
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        (folder / "log").touch()
        (folder / "log").chmod(0o666)
        behind, file = _graph(chance), folder / "graph.json"
        file.write_text(json.dumps(_document(behind, folder)))
        done = daemon.run("scheduler-run-workflow", str(file), "--name", f"g{graph}")
        assert done.returncode == 0, done.stderr
        label = f"workflow=g{graph}"
        while kills < KILLS:
            told = daemon.state_of("--label", label, "--nlast", "100")["jobs"]
            if all(job["state"] == "FINISHED" for job in told):
                break
            time.sleep(chance.uniform(0.0, 0.7))  # any moment of its life
            daemon.kill()
            daemon.start()
            kills += 1
        last = {f"{graph}-s{number}": "FINISHED" for number in behind}
        daemon.wait_state(**last)
        assert sorted((folder / "log").read_text().split()) == sorted(last)
        totals: dict[int, int] = {}
        for number, others in behind.items():
            totals[number] = 1 + sum(totals[other] for other in others)
            assert (folder / f"n-{graph}-s{number}").read_text() == str(totals[number])
        graph += 1


def _graph(chance: random.Random) -> dict[int, list[int]]:
    """What each step waits for."""
    return {
        number: sorted(chance.sample(range(number), k=min(number, chance.randint(0, 3))))
        for number in range(STEPS)
    }


def _document(behind: dict[int, list[int]], folder: Path) -> dict[str, object]:
    """A template for each step, because each has other paths on this machine."""
    graph, tasks, templates = folder.name, [], []
    for number, others in behind.items():
        name = f"{graph}-s{number}"
        inputs = {
            "parameters": [{"name": f"v{at}"} for at in range(len(others))],
            "artifacts": [
                {"name": f"a{at}", "path": f"{folder}/in-{name}-{at}"} for at in range(len(others))
            ],
        }
        outputs = {
            "parameters": [{"name": "n", "valueFrom": {"path": f"{folder}/n-{name}"}}],
            "artifacts": [{"name": "big", "path": f"{folder}/big-{name}"}],
        }
        values = [f"{{{{inputs.parameters.v{at}}}}}" for at in range(len(others))]
        words = ["python3", "-c", SUM, name, f"{folder}/log", str(folder), *values]
        made = {"name": name, "inputs": inputs, "outputs": outputs, "container": {"command": words}}
        templates.append(made)
        of = [f"tasks.{graph}-s{other}.outputs" for other in others]
        given = {
            "parameters": [
                {"name": f"v{at}", "value": f"{{{{{each}.parameters.n}}}}"}
                for at, each in enumerate(of)
            ],
            "artifacts": [
                {"name": f"a{at}", "from": f"{{{{{each}.artifacts.big}}}}"}
                for at, each in enumerate(of)
            ],
        }
        tasks.append(
            {
                "name": name,
                "template": name,
                "dependencies": [f"{graph}-s{other}" for other in others],
                "arguments": given,
            }
        )
    main = {"name": "main", "dag": {"tasks": tasks}}
    return {"spec": {"entrypoint": "main", "templates": [main, *templates]}}
