from __future__ import annotations

import difflib
from multiprocessing import Process
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # without types
from hypothesis import given
from hypothesis import strategies as st

from cli.command import UsageError
from cli.contexts import editing
from cli.contexts.context_file import CONTEXTS, ContextFile, load
from cli.contexts.editing import change, extract, insert, put, remove, rename

TEXT = """\
# mine, since 2024

current_context: lab   # at work
contexts:
  # the big one
  lab:
    server: gpu1:7443  # until May
    env:
        A: 1    # four blanks
        # B was here
    tags:
    - sandbox

  # at home
  "home.box": {server: "home:1", env: {A: x}}
  empty:
# the end
"""


def changed(old: str, new: str) -> tuple[list[str], list[str]]:
    lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    return [x[2:] for x in lines if x[0] == "-"], [x[2:] for x in lines if x[0] == "+"]


@pytest.mark.parametrize(
    ("place", "value", "gone", "new"),
    [
        (
            ["current_context"],
            "empty",
            ["current_context: lab   # at work"],
            ["current_context: empty  # at work"],
        ),
        ([CONTEXTS, "lab", "image"], "x", [], ["    image: x"]),
        (
            [CONTEXTS, "lab", "server"],
            "b:2",
            ["    server: gpu1:7443  # until May"],
            ["    server: b:2  # until May"],
        ),
        (
            [CONTEXTS, "lab", "env", "A"],
            "2",
            ["        A: 1    # four blanks"],
            ["        A: 2  # four blanks"],
        ),
        ([CONTEXTS, "lab", "env", "C"], "", [], ['        C: ""']),
        (
            [CONTEXTS, "lab", "tags"],
            ["a", "b"],
            ["    tags:", "    - sandbox"],
            ["    tags:", "      - a", "      - b"],
        ),
        ([CONTEXTS, "empty", "image"], "x", [], ["    image: x"]),
        ([CONTEXTS, "new"], {"image": "x"}, [], ["  new:", "    image: x"]),
        (
            [CONTEXTS, "home.box", "env", "B"],
            "y",
            ['  "home.box": {server: "home:1", env: {A: x}}'],
            ["  home.box:", "    server: home:1", "    env:", "      A: x", "      B: y"],
        ),
    ],
)
def test_only_the_lines_that_change_are_others(
    place: list[str], value: editing.Content, gone: list[str], new: list[str]
) -> None:
    removed, added = changed(TEXT, put(TEXT, place, value))
    assert [line for line in removed if line not in added] == [
        line for line in gone if line not in new
    ]
    assert [line for line in added if line not in removed] == [
        line for line in new if line not in gone
    ]


def test_what_is_removed_takes_no_comment_of_others_along() -> None:
    after = remove(TEXT, [CONTEXTS, "lab"])
    assert "# at home" in after
    assert "# the end" in after
    assert "gpu1" not in after
    after = remove(remove(after, [CONTEXTS, "home.box"]), [CONTEXTS, "empty"])
    assert yaml.safe_load(after)[CONTEXTS] is None
    assert put(after, [CONTEXTS, "x"], {}).count("  x: {}\n") == 1
    assert yaml.safe_load(remove(TEXT, [CONTEXTS, "home.box", "env", "A"]))[CONTEXTS][
        "home.box"
    ] == {"server": "home:1", "env": {}}


def test_a_context_is_renamed_where_it_is() -> None:
    removed, added = changed(TEXT, rename(TEXT, [CONTEXTS, "home.box"], "flat"))
    assert removed == ['  "home.box": {server: "home:1", env: {A: x}}']
    assert added == ['  flat: {server: "home:1", env: {A: x}}']


def test_what_is_taken_out_and_put_back_is_the_same() -> None:
    block = extract(TEXT, [CONTEXTS, "lab"])
    assert block.startswith("lab:\n  server: gpu1:7443  # until May\n")
    assert insert(TEXT, [CONTEXTS, "lab"], block) == TEXT


texts = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=12)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,6}", fullmatch=True)
values = st.one_of(texts, st.lists(texts, max_size=3), st.dictionaries(names, texts, max_size=3))


places = st.tuples(
    st.sampled_from(["lab", "home.box", "empty"]) | names,
    st.sampled_from(["server", "env", "tags", "image"]) | names,
    values,
)


@given(st.lists(places, min_size=1, max_size=8), st.data())
def test_any_document_can_be_built_and_taken_apart(
    steps: list[tuple[str, str, editing.Content]], data: st.DataObject
) -> None:
    """Compared with a dict, and read by a YAML that knows nothing of types."""
    text, model = TEXT, read(TEXT)
    for context, key, value in steps:
        text = put(text, [CONTEXTS, context, key], value)
        model[CONTEXTS].setdefault(context, {})[key] = value
        assert read(text) == model
    while model[CONTEXTS]:
        context = data.draw(st.sampled_from(sorted(model[CONTEXTS])))
        text = remove(text, [CONTEXTS, context])
        del model[CONTEXTS][context]
        assert (read(text)[CONTEXTS] or {}) == model[CONTEXTS]
    for comment in ("# mine, since 2024", "# at work", "# the big one", "# at home", "# the end"):
        assert comment in text


@pytest.mark.parametrize(
    "text", ["-", "- a", "a: b", "a #b", "~", "null", "<<", "", "é", "[", "*a"]
)
def test_what_yaml_would_take_for_something_else_is_quoted(text: str) -> None:
    changed = put(
        put(TEXT, [CONTEXTS, "lab", "env", text], text), [CONTEXTS, "lab", "tags"], [text]
    )
    lab = read(changed)[CONTEXTS]["lab"]
    assert lab["env"] == {"A": "1", text: text}
    assert lab["tags"] == [text]


def read(text: str) -> dict[str, dict[str, dict[str, object]]]:
    found = yaml.load(text, Loader=yaml.BaseLoader)
    found[CONTEXTS] = {name: each or {} for name, each in (found[CONTEXTS] or {}).items()}
    return dict(found)


# --- the file -----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "epoch-scheduler" / "config.yaml"


def add(name: str) -> None:
    change(lambda text, _: put(text, [CONTEXTS, name], {}))


def test_the_first_change_makes_a_file_that_only_its_owner_reads(file: Path) -> None:
    add("lab")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert file.read_text() == f"{editing.HEADER}contexts:\n  lab: {{}}\n"
    assert [each.name for each in file.parent.iterdir()] == ["config.yaml"]


def test_a_link_into_a_repository_of_dotfiles_stays_a_link(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "contexts.yaml"
    real.parent.mkdir()
    real.write_text("contexts:\n")
    real.chmod(0o644)
    file.parent.mkdir()
    file.symlink_to(real)
    add("lab")
    assert file.is_symlink()
    assert real.read_text() == "contexts:\n  lab: {}\n"
    assert real.stat().st_mode & 0o777 == 0o644


def test_a_change_that_would_break_the_file_changes_nothing(file: Path) -> None:
    add("lab")
    before = file.read_bytes()
    for act in (
        lambda text, _: put(text, [CONTEXTS, "lab", "sevrer"], "x"),
        lambda text, _: f"{text}}}",
    ):
        with pytest.raises(UsageError):
            change(act)
    assert file.read_bytes() == before


def test_twenty_that_edit_at_once_lose_nothing(file: Path) -> None:
    names = [f"c{number}" for number in range(20)]
    at_work = [Process(target=add, args=(name,)) for name in names]
    for each in at_work:
        each.start()
    for each in at_work:
        each.join()
    assert sorted(load().contexts) == sorted(names)


def test_a_change_sees_what_another_one_did_before(file: Path) -> None:
    add("lab")

    def act(text: str, now: ContextFile) -> str:
        assert list(now.contexts) == ["lab"]
        return text

    assert list(change(act).contexts) == ["lab"]
