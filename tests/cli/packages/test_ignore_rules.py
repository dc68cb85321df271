"""Which files of random trees are taken: the same as by git."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.packages.ignore_rules import IgnoreRules, parse
from cli.packages.selection import select
from tests.cli.packages.conftest import git, write

TREES = int(os.environ.get("TREES", "200"))  # `make package-trees`: 10,000
SEED = int(os.environ.get("SEED", "1"))

TEXTS = ("a", "b", "foo", "bar.py", "x.log", "data", "#c", "!d", "e f", "g ", "[h]", "ä")
NAMES = (*TEXTS, "foo.log", "\tà")
PIECES = (*NAMES, "*", "*.log", "?", "f*", "[ab]", "[!a]", "[^b]x", "**", r"\#c", r"\!d", "b*r.*")
ENDS = ("", "", "", "/", "/*", "/**", " ", r"\ ")
BEGINNINGS = ("", "", "", "/", "**/", "!", "!", "!/")


def random_pattern(chance: random.Random) -> str:
    if chance.random() < 0.05:
        return chance.choice(["", "#", "# a", "!", "/", "//", "*", "**", "!*", "!*/", "*/", "\\"])
    middle = "/".join(chance.choice(PIECES) for _ in range(chance.choice((1, 1, 1, 2, 2, 3))))
    return chance.choice(BEGINNINGS) + middle + chance.choice(ENDS)


def random_tree(chance: random.Random, root: Path, names: Sequence[str] = NAMES) -> None:
    root.mkdir()
    folders = [root]
    for _ in range(chance.randint(1, 6)):
        folder = chance.choice(folders) / chance.choice(names)
        if not os.path.lexists(folder):
            folder.mkdir()
            folders.append(folder)
    for _ in range(chance.randint(2, 14)):
        path = chance.choice(folders) / chance.choice(names)
        if not os.path.lexists(path):
            if chance.random() < 0.1:
                path.symlink_to(chance.choice(names))
            else:
                path.touch()
    for folder in folders:
        if chance.random() < (0.9 if folder == root else 0.3):
            lines = [random_pattern(chance) for _ in range(chance.randint(1, 5))]
            end = chance.choice(["\n", "\n", "\r\n"])
            (folder / ".gitignore").write_text(end.join(lines) + chance.choice(["", end]))


def taken_by_git(root: Path) -> set[str]:
    words = ("ls-files", "-co", "--exclude-standard", "-z")
    return {os.fsdecode(name) for name in git(root, *words).split(b"\0") if name}


def taken_by_us(root: Path) -> set[str]:
    rules = IgnoreRules(str(root), [".gitignore"])
    found = set()
    for path, folders, names in os.walk(root):
        below = os.path.relpath(path, root)
        folders[:] = [
            name
            for name in folders
            if not Path(path, name).is_symlink()
            and name != ".git"
            and rules.verdict(os.path.normpath(f"{below}/{name}"), is_folder=True) is None
        ]
        links = [each.name for each in Path(path).iterdir() if each.is_symlink()]
        for name in {*names, *links}:
            inside = os.path.normpath(f"{below}/{name}")
            if rules.verdict(inside) is None:
                found.add(inside)
    return found


def test_of_random_trees_with_ignore_files_we_take_what_git_takes(tmp_path: Path) -> None:
    """A tree that fails is named by its number; `SEED=N TREES=1` makes it again."""
    for number in range(SEED, SEED + TREES):
        root = tmp_path / str(number)
        random_tree(random.Random(number), root)
        subprocess.run(["git", "init", "--quiet", root], check=True)
        ours, theirs = taken_by_us(root), taken_by_git(root)
        rules = {str(path): path.read_text() for path in root.rglob(".gitignore")}
        assert ours == theirs, f"SEED={number}: {ours ^ theirs} {rules}"


@pytest.mark.parametrize(
    ("patterns", "path", "taken"),
    [
        ("*\n!a", "a/x", False),  # `!a` says nothing of what is in a
        ("*\n!a\n!a/*", "a/x", True),
        ("d/\n!d/keep", "d/keep", False),  # nothing below a folder that is left out
        ("d/*\n!d/keep", "d/keep", True),
        ("*.log\n!important.log", "important.log", True),
        ("/top", "below/top", True),
        ("docs/*.txt", "docs/sub/a.txt", True),
        ("**/logs", "a/b/logs", False),
        ("a/**/b", "a/b", False),
        (r"\!odd", "!odd", False),
        ("# comment", "# comment", True),
        (r"space\ ", "space ", False),
        ("space ", "space", False),
        ("x/", "x", True),  # a file
    ],
)
def test_known_cases(patterns: str, path: str, taken: bool, tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": patterns})
    assert (IgnoreRules(str(tmp_path), [".gitignore"]).verdict(path) is None) == taken


def test_a_rule_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "\n*.pyc\n", "sub/.gitignore": "data/\n"})
    rules = IgnoreRules(str(tmp_path), [".gitignore"])
    assert str(rules.verdict("a.pyc")) == ".gitignore:2: *.pyc"
    assert str(rules.verdict("sub/data/x")) == "sub/.gitignore:1: data/"
    assert rules.verdict("data/x") is None


def test_an_ignore_file_that_is_a_link_or_a_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("*\n")
    (tmp_path / "root/sub/.gitignore").mkdir(parents=True)
    (tmp_path / "root/.gitignore").symlink_to(tmp_path / "elsewhere")
    rules = IgnoreRules(str(tmp_path / "root"), [".gitignore"])
    assert rules.verdict("sub/x") is None


def test_a_line_that_is_no_pattern_has_no_rule() -> None:
    assert [parse("", line) for line in ("", "#", "!", "/", "  ", "//")] == [None] * 6


def test_outside_of_git_the_same_files_are_taken(tmp_path: Path) -> None:
    for number in range(SEED, SEED + 20):
        root = tmp_path / str(number)
        random_tree(random.Random(number), root, TEXTS)
        (root / "always").touch()
        with (root / ".gitignore").open("a") as file:
            file.write("\n!always\n")
        for link in [path for path in root.rglob("*") if path.is_symlink()]:
            link.unlink()
        walked = {*select(str(root)).taken}
        subprocess.run(["git", "init", "--quiet", root], check=True)
        assert walked == {*select(str(root)).taken} == taken_by_git(root)
