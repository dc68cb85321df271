"""Wait, decide, commit, act. The only module that connects decisions with the outside world."""

from __future__ import annotations

from scheduler.core.decide import decide
from scheduler.core.evolve import restore_view
from scheduler.core.facts import derive_facts
from scheduler.core.invariants import check
from scheduler.core.model import Rules, Time
from scheduler.core.ports import Cluster, Inbox, Policy, Step, Store


class Scheduler:
    def __init__(
        self, inbox: Inbox, store: Store, cluster: Cluster, policy: Policy, rules: Rules
    ) -> None:
        self._inbox, self._store, self._cluster = inbox, store, cluster
        self._policy, self._rules = policy, rules
        self.view = restore_view(store.load())  # may be read from any thread
        self._wake_at: Time | None = inbox.now()  # deadlines may have passed meanwhile

    def step(self) -> None:
        events = self._inbox.wait(self._wake_at)
        now = self._inbox.now()
        before = self.view
        made = decide(before, events, now, self._policy, self._rules)
        check(before, made.view, made.touched)
        told = derive_facts(before, made.view, made.touched, events, now)
        self._store.commit(
            Step(before, made.view, made.touched, told, made.profiles, now, events, made.actions)
        )
        self.view, self._wake_at = made.view, made.wake_at
        for action in made.actions:
            self._cluster.perform(action)
