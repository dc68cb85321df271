from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.packages.manifest import (
    BYTES_MAX,
    FILES_MAX,
    LINK,
    PROGRAM,
    BadPackage,
    PackagedFile,
    check_link,
    decode,
    encode,
    package_id,
)

DIGEST = "ab" * 32


def file(path: str, size: int = 3, digest: str = DIGEST) -> PackagedFile:
    return PackagedFile(path, size=size, digest=digest)


def link(path: str, target: str) -> PackagedFile:
    return PackagedFile(path, LINK, target=target)


def test_the_order_in_which_files_are_found_does_not_matter() -> None:
    entries = [file("b"), file("a/x"), PackagedFile("a-b", PROGRAM, 3, DIGEST), link("a/l", "../b")]
    assert encode(entries) == encode(reversed(entries))
    assert decode(encode(entries)) == sorted(entries, key=lambda entry: entry.path)


def test_the_id_is_that_of_the_first_version_for_ever() -> None:
    assert package_id(encode([file("train.py"), link("l", "train.py")])) == (
        "sha256:74c74087fb0c8602aceefa3195183fc97e6c1d9bcb589758ff65e014f0bcb0b9"
    )


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a/.", "."),
        *(".git/config", "sub/.git/hooks/post-checkout"),
        *("new\nline", "tab\tbed", "nul\0", "\x7f", "x" * 256, "a/" * 600 + "b"),
        "\udcff",
    ],
)
def test_a_path_that_could_lead_elsewhere_is_refused_and_named(path: str) -> None:
    with pytest.raises(BadPackage) as refused:
        encode([file(path)])
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("l", "a", True),
        ("l", "a/b", True),
        ("d/l", "../a", True),
        ("d/e/l", "../../a/b", True),
        ("l", "/etc/passwd", False),
        ("l", "..", False),
        ("l", "../a", False),
        ("d/l", "../../a", False),
        ("l", "a/../../b", False),
        # Another link may make `a` the folder of the package itself: then `a/..` is above it.
        ("d/l", "a/../b", False),
        ("l", "", False),
        ("l", "a\nb", False),
    ],
)
def test_a_link_stays_in_the_package_wherever_other_links_lead(
    path: str, target: str, inside: bool
) -> None:
    if inside:
        check_link(path, target)
    else:
        with pytest.raises(BadPackage, match=path):
            check_link(path, target)


def test_nothing_is_below_a_file_or_a_link() -> None:
    for above in (file("a"), link("a", "b")):
        with pytest.raises(BadPackage, match="a is not a folder"):
            encode([above, file("a/x"), file("b")])
    with pytest.raises(BadPackage, match="a is not a folder"):
        encode([file("a"), file("a-b"), file("a/x/y/z")])


def test_a_bomb_is_refused_by_what_it_says_of_itself() -> None:
    with pytest.raises(BadPackage, match="100001 files, 100000 at most"):
        encode(file(f"{number:06}") for number in range(FILES_MAX + 1))
    with pytest.raises(BadPackage, match="at most"):
        encode([file("a", BYTES_MAX // 2 + 1), file("b", BYTES_MAX // 2 + 1)])
    with pytest.raises(BadPackage, match="two sizes"):
        encode([file("a", 1), file("b", 2)])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"package 1", b"package 2"),
        lambda text: text.removesuffix(b"\n"),
        lambda text: text + b"\n",
        lambda text: text + text.split(b"\n")[1] + b"\n",
        lambda text: text.replace(b"file", b"device"),
        lambda text: text.replace(b"\t3\t", b"\t03\t"),
        lambda text: text.replace(b"\t3\t", b"\t-3\t"),
        lambda text: text.replace(b"abab", b"ABAB"),
        lambda text: text.replace(b"a.py", b"../a.py"),
        lambda text: text.replace(b"a.py", b"\xff"),
        lambda text: b"",
        lambda text: b"\n" * 33 * 2**20,
    ],
)
def test_a_manifest_is_read_only_if_we_could_have_written_it(change: object) -> None:
    good = encode([file("a.py"), file("b.py")])
    assert len(decode(good)) == 2
    with pytest.raises(BadPackage):
        decode(change(good))  # type: ignore[operator]


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), max_size=9)


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.integers(0, 9)))
def test_what_is_written_is_read_back_or_refused(files: dict[str, int]) -> None:
    entries = [file(path, size, f"{size:064x}") for path, size in files.items()]
    try:
        written = encode(entries)
    except BadPackage:
        return
    assert encode(decode(written)) == written


@given(st.binary(max_size=300))
def test_garbage_is_refused_in_one_line(garbage: bytes) -> None:
    with pytest.raises(BadPackage) as refused:
        decode(b"epoch-scheduler package 1\n" + garbage + b"!\n")
    assert "\n" not in str(refused.value)
