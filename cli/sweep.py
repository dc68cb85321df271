"""Many jobs at once: `run-scheduler --sweep`, `--repeat`, and `--spec FILE.py`.

All of them are accepted in one commit, or none. Each has the label `sweep`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli import command, run, spec_file, spec_function, waiting
from cli.command import UsageError, note, say
from cli.connection import Connection, connect
from cli.run import say_notes, secret_values
from cli.run_flags import ASKED_ABOVE, JOBS_MAX, REPEAT
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

LABEL = "sweep"
VALUES = "SWEEP_VALUES"  # the variable of each job that has its values, as JSON
BYTES_MAX = 2**20  # the scheduler takes no more at once

_RANGE = re.compile(r"[-+0-9.e]*[0-9]\.\.[-+0-9.e]+(:log)?", re.ASCII)

Values = Mapping[str, str]


def is_asked_for(options: argparse.Namespace) -> bool:
    from_function = options.spec is not None and function_of(options.spec) is not None
    return bool(options.sweep or options.repeat > 1 or from_function)


def function_of(spec: str) -> tuple[str, str] | None:
    """`exp.py:jobs` is the function `jobs` of that file, and `exp.py` its function `spec`. None:
    the file is a document."""
    if spec.endswith(".py"):
        return spec, "spec"
    file, _, function = spec.rpartition(":")
    return (file, function) if file.endswith(".py") and function.isidentifier() else None


# --- which jobs ---------------------------------------------------------------------------------


def chosen(count: int, options: argparse.Namespace) -> Sequence[int]:
    """The numbers of those that are submitted, of `count`, in their order."""
    taken = min(count, options.limit or count)
    if taken > JOBS_MAX:
        raise UsageError(f"{taken} jobs: at most {JOBS_MAX} can be submitted at once (--limit)")
    if taken > ASKED_ABOVE and not options.yes:
        raise UsageError(f"{taken} jobs: give --yes to submit more than {ASKED_ABOVE} at once")
    return random.sample(range(count), taken) if options.shuffle else range(taken)


def combinations(options: argparse.Namespace) -> list[Values]:
    """The values of each job, in the order in which they are submitted."""
    axes: dict[str, Sequence[str]] = {}
    if options.repeat > 1:
        axes[REPEAT] = [str(number) for number in range(options.repeat)]
    for key, values in options.sweep:
        if key in axes:
            twice = "is given twice" if key != REPEAT else "is the number that --repeat counts"
            raise UsageError(f"--sweep {key}: {twice}")
        if ranges := [value for value in values if _RANGE.fullmatch(value)]:
            raise UsageError(f"--sweep {key}={ranges[0]}: a range needs --search; give values")
        axes[key] = values
    count = math.prod(map(len, axes.values()))
    if count > sys.maxsize:
        raise UsageError(f"--sweep: {count} combinations are too many to choose from")
    return [combination(axes, number) for number in chosen(count, options)]


def combination(axes: Mapping[str, Sequence[str]], number: int) -> Values:
    """The last key changes fastest."""
    found = {}
    for key, values in reversed(tuple(axes.items())):
        number, place = divmod(number, len(values))
        found[key] = values[place]
    return {key: found[key] for key in axes}


def filled(base: pb.JobSpec, values: Values) -> pb.JobSpec:
    """The fields in which a job with these values differs from the others."""
    own = pb.JobSpec(name=_fill(base.name, values))
    own.command[:] = [_fill(word, values) for word in base.command]
    own.args[:] = [_fill(word, values) for word in base.args]
    own.env.extend(pb.KeyValue(key=pair.key, value=_fill(pair.value, values)) for pair in base.env)
    return own


def check_used(base: pb.JobSpec, options: argparse.Namespace) -> None:
    """A key that nothing uses is a typing error: all of its jobs would do the same."""
    texts = [base.name, *base.command, *base.args, *(pair.value for pair in base.env)]
    for key, _ in options.sweep:
        if not any(f"{{{key}}}" in text for text in texts):
            raise UsageError(
                f"--sweep {key}: neither the command nor --env nor JOB_NAME contains {{{key}}}"
            )


def _fill(text: str, values: Values) -> str:
    """Other braces stay as they are."""
    if "{" not in text:
        return text
    return re.sub(r"\{([^{}]*)\}", lambda match: values.get(match[1], match[0]), text)


# --- the request --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sweep:
    label: str
    request: pb.SubmitManyRequest
    values: Sequence[Values]  # of each job; empty for those of a function

    @property
    def ids(self) -> list[str]:
        return [job.job_id for job in self.request.jobs]

    def spec(self, number: int) -> pb.JobSpec:
        """Of one job, as far as it differs from the others."""
        return self.request.jobs[number].spec


def of_command(base: pb.JobSpec, options: argparse.Namespace) -> Sweep:
    """The jobs of one command line."""
    check_used(base, options)
    values = combinations(options)
    made = [filled(base, each) for each in values]
    for number, (own, each) in enumerate(zip(made, values, strict=True)):
        own.name = f"{own.name}-{number}"
        own.env.append(pb.KeyValue(key=VALUES, value=json.dumps(each)))
    common = pb.JobSpec()
    common.CopyFrom(base)
    return _sweep(common, made, values)


def of_specs(specs: Sequence[pb.JobSpec], options: argparse.Namespace) -> Sweep:
    """The jobs that a function or a document describes."""
    count = len(specs)
    made = []
    for number in chosen(count * options.repeat, options):
        own = pb.JobSpec()
        own.CopyFrom(specs[number % count])
        made.append(own)
    return _sweep(pb.JobSpec(), made, [])


def _sweep(common: pb.JobSpec, specs: Sequence[pb.JobSpec], values: Sequence[Values]) -> Sweep:
    label = labelled(common, specs)
    # Jobs of one moment are served in the order of their ids.
    ids = sorted(str(uuid.uuid4()) for _ in specs)
    jobs = [pb.SubmitRequest(job_id=id, spec=each) for id, each in zip(ids, specs, strict=True)]
    request = pb.SubmitManyRequest(common=common, jobs=jobs)
    if request.ByteSize() > BYTES_MAX:
        raise UsageError(
            f"these {len(specs)} jobs have {request.ByteSize()} bytes of text, and the scheduler "
            f"takes {BYTES_MAX} at once: put long values into files, or submit fewer (--limit)"
        )
    return Sweep(label, request, values)


def labelled(common: pb.JobSpec, specs: Sequence[pb.JobSpec]) -> str:
    """All jobs get the label `sweep`, unless they have it. Returns its value."""
    label = f"{_plain(common.name or specs[0].name)}{uuid.uuid4().hex[:8]}"
    given = {pair.value for pair in common.labels if pair.key == LABEL}
    for each in specs:
        given |= {pair.value for pair in each.labels if pair.key == LABEL}
    if given:
        return given.pop()
    added = pb.KeyValue(key=LABEL, value=label)
    common.labels.append(added)
    for each in specs:
        if each.labels:  # they would replace the common ones
            each.labels.append(added)
    return label


def _plain(name: str) -> str:
    """The name as a part of a label's value; empty if it cannot be one."""
    text = re.sub(r"[^A-Za-z0-9_.-]+", "", name.partition("{")[0]).strip("-_.")[:40]
    return f"{text}-" if text else ""


# --- what is said -------------------------------------------------------------------------------


def submit(options: argparse.Namespace) -> int:
    bases = [run.spec(options)] if options.spec is None else _described(options)
    secrets = {pair.key: pair for each in bases for pair in secret_values(options.secret, each)}
    made = of_command(bases[0], options) if options.spec is None else of_specs(bases, options)
    made.request.secrets.extend(secrets.values())
    client = connect(options)
    run.add_package(client, made.request.common, options)
    return _submit(client, made, options)


def _described(options: argparse.Namespace) -> list[pb.JobSpec]:
    """The jobs that a function or a document describes."""
    run.check_describes_all(options)
    named = function_of(options.spec)
    specs = (
        spec_function.call(*named, options.job_name) if named else [spec_file.read(options.spec)]
    )
    for number, each in enumerate(specs):
        each.held = options.hold or each.held
        each.name = f"{options.job_name}-{number}" if options.job_name else each.name
        if not each.name:
            raise UsageError(
                f"--spec {options.spec}: job {number} has no name, nor JOB_NAME is given"
            )
    return specs


def _submit(client: Connection, made: Sweep, options: argparse.Namespace) -> int:
    made.request.dry_run = options.dry_run
    reply = client.submit_many(made.request)
    say_notes(reply)
    count = f"{len(made.ids)} job{'s' * (len(made.ids) > 1)}"
    if options.output != "table":
        say(command.document(_record(made, reply, options.dry_run), options.output))
    elif options.dry_run:
        for number in range(len(made.ids)):
            own = made.spec(number)
            words = shlex.join([*own.command, *own.args])
            say(printable(f"{own.name}  {words}"))
    else:
        say("\n".join(made.ids))
    sys.stdout.flush()
    if options.dry_run:
        note(f"would submit {count}, which {'was' if len(made.ids) == 1 else 'were all'} checked")
        return 0
    note(f"sweep {made.label}: {count}; scheduler-state --label {LABEL}={made.label}")
    if not options.wait:
        return 0
    return waiting.wait_for_jobs(client, (LABEL, made.label), made.ids, "run-scheduler")


def _record(made: Sweep, reply: pb.SubmitManyReply, dry_run: bool) -> dict[str, object]:
    jobs = []
    for number, job_id in enumerate(made.ids):
        job: dict[str, object] = {"name": made.spec(number).name}
        if not dry_run:
            job["id"] = job_id
        if made.values:
            job["values"] = dict(made.values[number])
        jobs.append(job)
    return {"sweep": made.label, "jobs": jobs, "notes": list(reply.notes)}
