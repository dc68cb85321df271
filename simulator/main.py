"""The command that simulates many lives on all cores, or one life in detail."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial

import click

from simulator.lives.life import ADVICE, LIFE_POLICIES, LifeReport, live

PROGRESS_EVERY_SECONDS = 2.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--lives", default=1000, type=click.IntRange(1), help="Number of lives.")
@click.option("--first", default=1, type=click.IntRange(0), help="Seed of the first life.")
@click.option("--jobs", default=10, type=click.IntRange(1), help="Most jobs in a life.")
@click.option("--processes", default=2, type=click.IntRange(1), help="Lives at a time.")
@click.option("--seed", type=click.IntRange(0), help="Simulate one life, with this seed.")
@click.option("--policy", type=click.Choice(LIFE_POLICIES), help="For all lives; default: drawn.")
@click.option(
    "--advice",
    default=ADVICE[0],
    type=click.Choice(ADVICE),
    show_default=True,
    help="Which waiting jobs have their remedies tried at each plan.",
)
@click.option("--verbose", is_flag=True, help="With --seed: print its options, then each fact.")
@click.option("--until_violation", is_flag=True, help="Stop at the first violation.")
def main(
    lives: int,
    first: int,
    jobs: int,
    processes: int,
    seed: int | None,
    policy: str | None,
    advice: str,
    verbose: bool,
    until_violation: bool,
) -> None:
    """Run the daemon's own loop in a simulated world with faults, and compare it with the truth.

    One seed is one life: the same seed gives the same life, fact by fact, on every machine. Exits
    with 1 if a property was violated.
    """
    if verbose and seed is None:
        raise click.UsageError("--verbose needs --seed")
    if seed is not None:
        reports = [live(seed, jobs, click.echo if verbose else None, policy, advice)]
    else:
        seeds = range(first, first + lives)
        one = partial(live, jobs=jobs, policy=policy, advice=advice)
        reports = list(_run_lives(seeds, one, processes, until_violation))
    _print_summary(reports)
    sys.exit(any(report.violation for report in reports))


def _run_lives(
    seeds: range, one: partial[LifeReport], processes: int, until_violation: bool
) -> Iterator[LifeReport]:
    """Yields each report as its life ends; prints violations at once and the progress at times."""
    started = told_at = time.monotonic()
    with multiprocessing.Pool(processes) as pool:
        done = pool.imap_unordered(one, seeds, chunksize=5)
        for count, report in enumerate(done, 1):
            yield report
            if report.violation:
                click.echo(_violation_text(report, one.keywords))
                if until_violation:
                    return
            now = time.monotonic()
            if now - told_at > PROGRESS_EVERY_SECONDS:
                told_at, rate = now, count / (now - started)
                left = (len(seeds) - count) / rate
                click.echo(f"{count} of {len(seeds)}, {rate:.0f}/s, {left:.0f} s left", err=True)


def _violation_text(report: LifeReport, under: Mapping[str, object]) -> str:
    said = " ".join(f"--{name} {value}" for name, value in under.items() if value is not None)
    again = f"python -m simulator.main --seed {report.seed} {said} --verbose"
    return f"seed {report.seed}: {report.violation}\n  again: {again}"


def _print_summary(reports: list[LifeReport]) -> None:
    reports.sort(key=lambda report: report.seed)
    fingerprint = hashlib.sha256()
    for report in reports:
        fingerprint.update(report.fingerprint.encode())
    wrong = [report for report in reports if report.violation]
    if len(reports) == 1 and wrong:
        click.echo(wrong[0].violation)
    seconds = sum(report.seconds for report in reports)
    click.echo(
        f"{len(reports)} lives from seed {reports[0].seed}: {len(wrong)} violations,"
        f" {sum(report.steps for report in reports)} steps,"
        f" {sum(report.crashes for report in reports)} crashes,"
        f" {sum(report.virtual_seconds for report in reports) / 3600:.0f} virtual hours,"
        f" {len(reports) / seconds:.1f} lives per second and core,"
        f" fingerprint {fingerprint.hexdigest()[:16]}"
    )


if __name__ == "__main__":
    main()
