"""Only so many jobs of a sweep start, whatever is free."""

from __future__ import annotations

from scheduler.core.adopt import adopt
from scheduler.core.fast_replace import replace
from scheduler.core.model import Gpu, Job, JobId, JobSpec, Node, Plan, Rules, Share, View
from scheduler.core.reason_text import line
from scheduler.planning.policies import NAMES, POLICIES
from scheduler.planning.turns import later_jobs

NODE = Node("n", tuple(Gpu(f"gpu{k}", k, "t4", 16384) for k in range(8)))
SPEC = JobSpec("grid", "ada", labels=(("sweep", "s"),), parallel=2, memory_mib=1000)
NOW = 10.0


def view(*specs: JobSpec) -> View:
    jobs = [
        Job.submitted(JobId(f"j{place}"), replace(spec, name=f"j{place}"), float(place))
        for place, spec in enumerate(specs)
    ]
    return View(jobs={job.id: job for job in jobs}, nodes=(NODE,), observed_at=NOW)


def test_every_policy_starts_so_many_and_says_what_the_others_wait_for() -> None:
    for name in NAMES:
        policy, before = POLICIES[name](Rules()), view(*[SPEC] * 5)
        first = adopt(before, policy(before, NOW), NOW, Rules()).view
        assert {id for id, job in first.jobs.items() if job.run} == {"j0", "j1"}, name
        plan = policy(first, NOW)
        why = plan.why[JobId("j2")]
        assert line(why) == "parallel (at most 2 at once; j0 and j1 come first)", name
        assert adopt(first, plan, NOW, Rules()).view.jobs[JobId("j2")].run is None


def test_other_jobs_and_other_sweeps_have_their_own_turn() -> None:
    other = replace(SPEC, labels=(("sweep", "t"),))
    flow = replace(SPEC, labels=(("workflow", "s"), ("workflow-id", "s2")))
    assert set(later_jobs(view(*[flow] * 3, SPEC), NOW)) == {"j2"}
    free = replace(SPEC, labels=(), parallel=0)
    seen = view(*[SPEC] * 3, other, replace(SPEC, user="bob"), free)
    assert set(later_jobs(seen, NOW)) == {"j2"}


def test_a_job_that_may_not_start_takes_no_turn() -> None:
    held = replace(SPEC, held=True)
    assert set(later_jobs(view(held, SPEC, SPEC, SPEC), NOW)) == {"j3"}


def test_those_that_have_run_and_those_of_higher_priority_come_first() -> None:
    seen = view(SPEC, SPEC, SPEC, replace(SPEC, priority=5))
    jobs = dict(seen.jobs)
    jobs[JobId("j2")] = replace(jobs[JobId("j2")], attempts=1)
    assert list(later_jobs(replace(seen, jobs=jobs), NOW)) == ["j0", "j1"]


def test_no_plan_makes_more_of_them_run() -> None:
    before = view(*[SPEC] * 4)
    share = [(Share("n", f"gpu{k}", 1000),) for k in range(4)]
    plan = Plan(placements=dict(zip(before.jobs, share, strict=True)))
    after = adopt(before, plan, NOW, Rules()).view
    assert [id for id, job in after.jobs.items() if job.run] == ["j0", "j1"]
