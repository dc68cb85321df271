"""A job's forecast, and what the scheduler has learned about it, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduler.presentation.render import clock, span
from scheduler.v1 import scheduler_pb2 as pb

NAMES_MAX = 3
SHORT = 8


def start_forecast(job: pb.Job, now: float) -> str:
    """`when grid-3 ends, in about 41 min (80 %: 30 to 55 min), or now with --num_gpus 1`"""
    parts = []
    if job.why.until:
        one = len(job.why.until) == 1
        verb = "ends" if one else "end"
        if any(name.stopping for name in job.why.until):
            verb = "releases its GPUs" if one else "release their GPUs"
        parts.append(f"when {_name_list(job.why.until)} {verb}")
        parts += _of_silent_jobs(job.why.until, now)
    if job.why.ahead:
        parts.append(f"after {_name_list(job.why.ahead)}")
    eta = job.eta
    if eta.HasField("starts_at") and eta.starts_at > now:
        parts.append(_forecast_text(eta.starts_at, eta.starts_low, eta.starts_high, now))
    if job.why.instead:
        parts.append(f"{'or ' if parts else ''}now {job.why.instead}")
    return ", ".join(parts)


def _of_silent_jobs(names: Sequence[pb.JobName], now: float) -> Iterator[str]:
    """When these jobs end cannot be told, but there may be a deadline."""
    silent = [name for name in names if name.silent]
    if not silent:
        return
    endless = [name for name in silent if not name.HasField("deadline")]
    if endless:
        verb = "does" if len(endless) == 1 else "do"
        yield f"but {_name_list(endless)} {verb} not report, without a deadline"
    else:
        verb = "does" if len(silent) == 1 else "do"
        at = clock(max(name.deadline for name in silent), now)
        yield f"at the latest at {at} ({_name_list(silent)} {verb} not report)"


def end_forecast(job: pb.Job, now: float) -> str:
    eta = job.eta
    if eta.HasField("deadline"):
        return f"at the latest at {clock(eta.deadline, now)}, unless it reports again"
    if not eta.HasField("ends_at"):
        return ""
    minute = clock(eta.ends_at, now).rpartition(":")[0]
    return f"{_forecast_text(eta.ends_at, eta.ends_low, eta.ends_high, now)}, at {minute}"


def _forecast_text(at: float, low: float, high: float, now: float) -> str:
    """Four of five such forecasts come true."""
    least, most = span(low - now) if low >= now + 0.05 else "0 s", span(high - now)
    unit = most.rpartition(" ")[2]
    if least.count(" ") == most.count(" ") == 1:
        least = least.removesuffix(f" {unit}")
    return f"in about {span(at - now)} (80 %: {least} to {most})"


def _name_list(names: Sequence[pb.JobName]) -> str:
    """`a`, `a and b`, `a, b and 7 others`"""
    shown = [name.name or name.id[-SHORT:] for name in names]
    if len(shown) > NAMES_MAX:
        rest = len(shown) - NAMES_MAX + 1
        shown[NAMES_MAX - 1 :] = [f"{rest} others"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def learned_fields(message: pb.Learned) -> Iterator[tuple[str, str]]:
    for speed in message.speeds:
        yield f"on {speed.gpus}", _seconds(speed)
    if message.HasField("next_try"):
        yield "next try", next_try(message.next_try)
    for beside in message.beside:
        how = "measured" if beside.measured else "expected"
        yield (
            "beside",
            f"{_name_list(beside.jobs)} on {beside.gpus}: {beside.speed:.2f} of its speed alone,"
            f" {how}",
        )
    asked, needed = message.memory_asked_mib, message.memory_mib
    if asked or needed:
        told = f"{needed:,} MiB" if needed else "not known yet"
        yield (
            "memory",
            f"{told}; the estimate was {asked:,} MiB"
            if asked
            else f"{told}; there was no estimate",
        )
    for peak in message.peaks:
        gpus = "1 GPU" if peak.gpus == 1 else f"each of {peak.gpus} GPUs"
        yield "memory", f"{peak.memory_mib:,} MiB of {gpus}, measured"
    if message.HasField("gpu_util"):
        yield "busy", f"{message.gpu_util:.0%} of the time"
    if message.HasField("restart_seconds"):
        yield "restart", f"{span(message.restart_seconds)} from a launch to the first epoch"
    if message.profiles_ignored:
        count = message.profiles_ignored
        reports = "1 report" if count == 1 else f"{count} reports"
        yield "ignored", f"{reports} with impossible values"


def _seconds(speed: pb.Speed) -> str:
    if speed.HasField("measured_seconds"):
        return f"{span(speed.measured_seconds)} an epoch, measured"
    if speed.HasField("predicted_seconds"):
        within = f" ± {speed.doubt:.0%}" if speed.HasField("doubt") else ""
        return f"{span(speed.predicted_seconds)}{within} an epoch, predicted"
    return "not known"


def next_try(found: pb.NextTry) -> str:
    """`t4x16/4, expected 31% (± 20%) faster than t4x8/2; waits for 8 idle GPUs`"""
    match found.kind:
        case "now":
            return f"{found.gpus}, where it is now: no job of its kind was measured there"
        case "another":
            return f"none now: {_name_list([found.job])} tries first, and this job learns from it"
        case "last_epochs":
            return "none in a job's last epochs"
        case "unmeasured":
            return "none before an epoch of this job was measured"
        case "known":
            return f"none: its kind was measured on all GPUs that it may have{_other(found)}"
        case "unpromising":
            return f"none: no other GPUs are worth a restart{_other(found)}"
    waits = ""
    if found.waits_for:
        waits = f"; waits for {found.waits_for} idle GPU{'s' if found.waits_for > 1 else ''}"
    return f"{_expected_speed(found)}{waits}"


def _other(found: pb.NextTry) -> str:
    return f" ({_expected_speed(found)})" if found.gpus else ""


def _expected_speed(found: pb.NextTry) -> str:
    within = f" (± {found.doubt:.0%})" if found.doubt else ""
    change = f"{abs(found.speed - 1):.0%}{within} {'faster' if found.speed >= 1 else 'slower'}"
    how = "expected" if found.doubt else "measured"
    return f"{found.gpus}, {how} {change} than {found.than}"
