"""Names of images, and whether an image is among those that a node lists."""

from __future__ import annotations

import pytest

from scheduler.core.images import canonical, has

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("x", "docker.io/library/x:latest"),
        ("x:1", "docker.io/library/x:1"),
        ("library/x", "docker.io/library/x:latest"),
        ("lab/x", "docker.io/lab/x:latest"),
        ("lab/vision/x:1.0-cuda", "docker.io/lab/vision/x:1.0-cuda"),
        ("docker.io/x:1", "docker.io/library/x:1"),
        ("docker.io/library/x:1", "docker.io/library/x:1"),
        ("index.docker.io/lab/x:1", "docker.io/lab/x:1"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("lab:5000/x:1", "lab:5000/x:1"),
        ("registry.lab.example/x", "registry.lab.example/x:latest"),
        ("registry.lab.example/a/b:2", "registry.lab.example/a/b:2"),
        (f"x@{DIGEST}", f"docker.io/library/x@{DIGEST}"),
        (f"lab:5000/x:1@{DIGEST}", f"lab:5000/x@{DIGEST}"),
        (DIGEST, None),
        (DIGEST.removeprefix("sha256:"), None),
        ("0123456789ab", "docker.io/library/0123456789ab:latest"),
        ("sha256:1", "docker.io/library/sha256:1"),
    ],
)
def test_an_image_is_called_as_a_container_runtime_lists_it(image: str, name: str | None) -> None:
    assert canonical(image) == name
    if name:
        assert canonical(name) == name


def test_an_image_is_there_unless_it_is_known_not_to_be() -> None:
    images = frozenset({"docker.io/lab/x:1"})
    assert has(images, "lab/x:1")
    assert not has(images, "lab/x")
    assert not has(images, "")
    assert has(images | {""}, "")
    assert has(images, DIGEST), "no runtime lists ids"
    assert has(None, "lab/x")
    assert not has(frozenset(), "lab/x:1")
