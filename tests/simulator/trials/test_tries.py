"""What tries cost in a trial, and a policy that tries nothing."""

from __future__ import annotations

from scheduler.core.model import Rules
from scheduler.core.ports import Policy
from scheduler.planning.policies.gpu_sharing import gpu_sharing
from simulator.traces.worlds import build_world
from simulator.trials.outcome import Result
from simulator.trials.trial import Trial
from simulator.trials.tries import TryRecorder, without_tries

RULES = Rules(plan_every_seconds=60.0)
JOBS = build_world("cliff", 1).jobs[:8]
NODES = build_world("cliff", 1).nodes


def played(policy: Policy) -> tuple[Result, dict[str, float]]:
    recorder = TryRecorder(policy, RULES)
    result = Trial(JOBS, NODES, recorder.plan, RULES, listener=recorder.on_step).run()
    return result, recorder.figures(result.bars, 20.0)


def test_tries_are_counted_and_counting_changes_nothing() -> None:
    result, tried = played(gpu_sharing(RULES))
    assert result == Trial(JOBS, NODES, gpu_sharing(RULES), RULES).run()
    assert 0 <= tried["tries_faster"] <= tried["tries"]
    assert tried["tries"] > 0
    held = sum(bar.to_at - bar.from_at for bar in result.bars) / 3600.0
    assert 0.0 < tried["tried_gpu_hours"] < held


def test_a_policy_without_doubt_tries_nothing() -> None:
    result, tried = played(without_tries(RULES))
    assert set(tried.values()) == {0.0}
    assert result.summary()["unfinished"] == 0
