"""The picture of the packages in docs/design.md shows what the code imports."""

from __future__ import annotations

from tests import package_map


def test_the_picture_is_drawn_from_the_imports_of_today() -> None:
    drawn = package_map.as_svg(package_map.imports())
    assert package_map.PICTURE.read_text() == drawn, "draw it again: make map"


def test_an_arrow_that_others_imply_is_left_out() -> None:
    edges = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset[str]()}
    assert package_map.reduced(edges) == {"a": {"b"}, "b": {"c"}, "c": frozenset()}


def test_every_package_has_its_row_in_the_design() -> None:
    design = (package_map.ROOT / "docs" / "design.md").read_text()
    packages = [name for layer in package_map.layers() for name in layer]
    missing = [name for name in packages if f"`{name}" not in design]
    assert not missing
