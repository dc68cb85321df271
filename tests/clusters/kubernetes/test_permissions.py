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


def test_a_secret_is_created_and_no_other_is_read_or_changed() -> None:
    """A Role can name the Secrets that may be updated or deleted, but not those of future runs."""
    verbs = {rule.resource: set(rule.verbs) for rule in IN_NAMESPACE}
    assert verbs["secrets"] == {"create"}
