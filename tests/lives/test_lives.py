"""Lives of the daemon's own loop: all seeds that ever failed, and some fixed others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.lives.life import LIFE_POLICIES, live
from simulator.main import main
from tests.lives.mutants import MUTANTS, copied

ROOT = Path(__file__).resolve().parents[2]
SEEDS = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("policy", LIFE_POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_that_failed_once_ends_well(seed: int, policy: str) -> None:
    assert live(seed, policy=policy).violation == ""


@pytest.mark.parametrize("first", range(10_000, 10_060, 10))
def test_lives_end_well(first: int) -> None:
    violations = [report for seed in range(first, first + 10) if (report := live(seed)).violation]
    assert violations == []


# In these lives, leftovers of a job's own last run, on a GPU with a fault, blocked it unnoticed.
ADVISED = 7218, 8255, 9020


@pytest.mark.parametrize("seed", [*ADVISED, *range(10_000, 10_006)])
def test_every_remedy_at_every_plan_is_true(seed: int) -> None:
    report = live(seed, advice="all")
    assert report.violation == ""
    assert report == live(seed), "the checker changes nothing"


def test_a_seed_is_a_life() -> None:
    assert live(5) == live(5)
    assert live(5).fingerprint != live(6).fingerprint


def test_a_life_does_not_depend_on_the_order_of_sets() -> None:
    told = set()
    for hash_seed in ("0", "12345"):
        done = subprocess.run(
            [sys.executable, "-m", "simulator.main", "--lives", "12", "--processes", "1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        told.add(done.stdout.split("fingerprint ")[1])
    assert len(told) == 1


def test_one_life_is_printed_in_detail() -> None:
    done = CliRunner().invoke(main, ["--seed", "5", "--verbose"])
    assert done.exit_code == 0
    first, *rest = done.stdout.splitlines()
    assert first == "seed 5"
    assert any(line.startswith("Faults: ") for line in rest)
    assert any("job_submitted" in line for line in rest)
    assert "0 violations" in rest[-1]


def test_details_need_a_seed() -> None:
    done = CliRunner().invoke(main, ["--verbose"])
    assert done.exit_code == 2
    assert "--verbose needs --seed" in done.stderr


def test_every_mutant_can_be_planted() -> None:
    names = [planted.name for planted in MUTANTS]
    assert len(set(names)) == len(names) >= 25
    for planted in MUTANTS:
        with copied(planted) as folder:
            for file, old, _ in planted.changes:
                assert (folder / file).read_text() != (ROOT / file).read_text(), old
