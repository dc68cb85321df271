from __future__ import annotations

import pytest

from scheduler.access.project_table import Project, namespace, projects
from scheduler.core.errors import ConfigError


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("My_Project.X", "my-project-x"),
        ("vision", "vision"),
        ("  a  b_c--", "a-b-c"),
        ("p" * 62 + ".x", "p" * 62),
        ("Öl", "l"),
        ("___", ""),
    ],
)
def test_a_namespace_is_named_after_its_project(project: str, name: str) -> None:
    assert namespace(project) == name


def test_a_project_has_what_the_settings_say() -> None:
    given = {"My_Project.X": {}, "nlp": {"namespace": "text", "users": ["ada"]}}
    assert projects(given) == {
        "My_Project.X": Project("my-project-x"),
        "nlp": Project("text", ("ada",)),
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"a": 7}, "projects.a: expected"),
        ({"a": {"user": []}}, "projects.a: object contains unknown field user"),
        ({"a": {"users": "ada"}}, r"projects.a.users: expected array"),
        ({"___": {}}, "projects.___.namespace: '' is not a valid namespace name"),
        ({"a": {"namespace": "A"}}, "projects.a.namespace: 'A' is not a valid namespace name"),
        ({"a.b": {}, "a_b": {}}, "projects: a.b and a_b would share the namespace a-b"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        projects(given)
