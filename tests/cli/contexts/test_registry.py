from __future__ import annotations

import pytest

from cli.contexts.registry import in_registry, registry


@pytest.mark.parametrize(
    ("image", "url", "named"),
    [
        ("crisptrain:0.1.0", "https://jfrog.com/", "jfrog.com/crisptrain:0.1.0"),
        ("crisptrain:0.1.0", "http://localhost:32000", "localhost:32000/crisptrain:0.1.0"),
        ("team/x", "https://jfrog.com//docker/", "jfrog.com/docker/team/x"),
        ("x@sha256:00", "gcr.io", "gcr.io/x@sha256:00"),
        ("docker.io/library/python:3", "https://jfrog.com", "docker.io/library/python:3"),
        ("localhost/x", "https://jfrog.com", "localhost/x"),
        ("node:5000/x", "https://jfrog.com", "node:5000/x"),
        ("0" * 64, "https://jfrog.com", "0" * 64),
        ("", "https://jfrog.com", ""),
        ("python:3", "", "python:3"),
    ],
)
def test_an_image_without_a_host_is_in_the_registry_of_the_context(
    image: str, url: str, named: str
) -> None:
    assert in_registry(image, url) == named


@pytest.mark.parametrize("url", ["", "https://", "a b", "user:word@host/x", "https://h/?q"])
def test_what_is_no_address_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not the address of a registry"):
        registry(url)
