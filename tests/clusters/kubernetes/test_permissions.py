"""The one list of what a daemon may do on a cluster."""

from __future__ import annotations

from itertools import chain

from scheduler.clusters.kubernetes.permissions import IN_CLUSTER, IN_NAMESPACE, Rule


def test_a_rule_is_written_as_a_role_has_it() -> None:
    assert Rule("jobs", ("get", "list"), "batch").written() == {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["get", "list"],
    }


def test_nothing_is_listed_twice() -> None:
    every = [
        (rule.group, rule.resource, verb)
        for rule in chain(IN_NAMESPACE, IN_CLUSTER)
        for verb in rule.verbs
    ]
    assert len(set(every)) == len(every)


def test_no_secret_is_ever_read() -> None:
    verbs = {rule.resource: set(rule.verbs) for rule in IN_NAMESPACE}
    assert not verbs["secrets"] & {"get", "list", "watch"}
