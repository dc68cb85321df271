"""What has been measured of one job, and what is expected of it elsewhere: for its owner. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduler.core.memory import fewest_nodes, node_sizes, usable_gpus
from scheduler.core.model import Job, Measured, Placement, Reason, Run, View, Waiting
from scheduler.outlook.current_speeds import DOUBT_MAX, CurrentSpeeds
from scheduler.outlook.prospect import SpeedBeside, SpeedOn

WORTH_TELLING = 0.95  # of the present time per epoch
CONFIGS_MAX = 8  # of each type of GPU


def speeds_on(job: Job, view: View, paces: CurrentSpeeds) -> list[SpeedOn]:
    """Returns the speeds on all placements where the job has run alone, and on the numbers of GPUs
    that it may have here."""
    alone = {m.placement: m.seconds for m in job.measured if not m.beside}
    configs = {str(config): config for config in _possible(job, view)}
    for key in alone:
        if place := Placement.parse(key):
            configs.setdefault(key, place)
    found = {key: SpeedOn(key, seconds, None) for key, seconds in alone.items()}
    if job.id in paces.row:
        row = paces.row[job.id]
        chosen = sorted(configs.values())
        predicted, doubt = paces.speeds.estimate(chosen)[row], paces.speeds.uncertainty(chosen)[row]
        for config, seconds, sd in zip(chosen, predicted.tolist(), doubt.tolist(), strict=True):
            shown = alone.get(str(config))
            if sd < DOUBT_MAX:
                found[str(config)] = SpeedOn(str(config), shown, seconds, sd)
            else:
                found[str(config)] = SpeedOn(str(config), shown, None)
    return sorted(found.values(), key=lambda on: _order(on.gpus))


def _order(key: str) -> tuple[str, int, int]:
    place = Placement.parse(key)
    return (place.type, place.gpus, place.nodes) if place else (key, 0, 0)


def _possible(job: Job, view: View) -> Iterator[Placement]:
    """Yields the fewest and the most GPUs, and powers of two between, for each type."""
    least, most = job.spec.gpus_min, job.spec.gpus_max
    for type, sizes in sorted(node_sizes(usable_gpus(view.nodes)).items()):
        between = [2**n for n in range(12) if least < 2**n < most]
        counts = [count for count in (least, *between, most) if 0 < count <= sum(sizes)]
        for count in list(dict.fromkeys(counts))[:CONFIGS_MAX]:
            yield Placement(type, count, fewest_nodes(sizes, count))


def speeds_beside(job: Job, paces: CurrentSpeeds) -> list[SpeedBeside]:
    """Returns the speeds beside all neighbours with which the job was measured, and beside the
    present ones."""
    found = []
    for measured in job.measured:
        alone = _alone(job.measured, measured.placement)
        if measured.beside and alone is None and job.id in paces.row:
            alone = paces.alone(job, measured.placement)[0]
        if measured.beside and alone is not None:
            speed = min(1.0, alone / measured.seconds)
            known = _alone(job.measured, measured.placement) is not None
            found.append(SpeedBeside(measured.beside, measured.placement, speed, known))
    if job.run and job.id in paces.row:
        pace = paces.of(job, job.run)
        if pace.beside and not pace.measured:
            now = SpeedBeside(pace.beside, job.run.placement, pace.speed, False)
            found.append(now)
    return found


def _alone(measured: Sequence[Measured], placement: str) -> float | None:
    here = (m.seconds for m in measured if m.placement == placement and not m.beside)
    return next(here, None)


def slowed(job: Job, view: View, paces: CurrentSpeeds) -> Reason | None:
    """Returns why a run is slower than it could be, by how much, and because of which jobs."""
    run = job.run
    if run is None or job.id not in paces.row:
        return None
    pace = paces.of(job, run)
    if not pace.beside or round(pace.speed, 2) == 1.0:
        return _has_fewer(job, run, pace.seconds, view, paces)
    names = tuple([view.jobs[other].spec.name for other in pace.beside])
    both = pace.measured and _alone(job.measured, run.placement) is not None
    return Reason(Waiting.SLOWED, speed=pace.speed, measured=both, jobs=names)


def _has_fewer(
    job: Job, run: Run, seconds: float, view: View, paces: CurrentSpeeds
) -> Reason | None:
    """Returns the reason if the job may have more GPUs and would be faster on them, but other jobs
    use them."""
    place = Placement.parse(run.placement)
    alike = [config for config in _possible(job, view) if place and config.type == place.type]
    config = max(alike, key=lambda config: config.gpus, default=None)
    if config is None or config.gpus <= len(run.shares):
        return None
    there, doubt = paces.alone(job, str(config))
    if doubt >= DOUBT_MAX or there > WORTH_TELLING * seconds:
        return None
    own = {share.key for share in run.shares}
    others = dict.fromkeys(
        view.jobs[other].spec.name
        for key, gpu in usable_gpus(view.nodes).items()
        if gpu.type == config.type and key not in own
        for other, _ in view.held.get(key, {})
        if other in view.jobs
    )
    return Reason(Waiting.SLOWED, gpus=config.gpus, speed=there / seconds, jobs=tuple(others))
