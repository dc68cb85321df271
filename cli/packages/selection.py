"""Which files of a folder a package has, and by which rule.

In a git work tree, those that git tracks or would add, except what a .jobignore names; elsewhere
all that no .gitignore or .jobignore names. What does not belong into a package is refused rather
than left out in silence: who misses a file in a job would have to guess why.
"""

# ruff: noqa: PTH110, PTH112  # texts, as git and manifests have them

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli.command import CommandError, UsageError, note
from cli.packages.ignore_rules import IgnoreRule, IgnoreRules, parse
from scheduler.packages import manifest
from scheduler.packages.manifest import BadPackage

FILE_BYTES_MAX = 100 * 2**20
JOB_IGNORE = ".jobignore"
NAMED_MAX = 3  # of what is refused
_REFUSED = 4
TRACKED, UNTRACKED, FOUND = "tracked by git", "untracked, not ignored", "not ignored"

_SECRET = (".env", "id_*", "*.pem", "creds.yaml")
_CHECKPOINTS = ("*.ckpt", "*.pt", "*.pth", "*.safetensors", "checkpoints/")
_UNWANTED = (
    ("of wandb", ("wandb/",)),
    ("a checkpoint", _CHECKPOINTS),
    ("may be a secret", _SECRET),
)


@dataclass(slots=True)
class Selection:
    root: str
    taken: dict[str, str] = field(default_factory=dict)  # each path, and the rule that took it
    left_out: dict[str, str] = field(default_factory=dict)  # and that left it out
    in_git: bool = False


def select(folder: str, include: Sequence[str] = (), explain: bool = False) -> Selection:
    """Raises CommandError, in one line, if something there does not belong into a package.

    `include`: patterns of what is taken although it is ignored or refused. `explain`: `left_out`
    has a rule for what git ignores, too.
    """
    root = os.path.realpath(folder)
    if not os.path.isdir(root):
        problem = "is not a folder" if os.path.exists(root) else "no such folder"
        raise UsageError(f"{folder}: {problem}")
    selection = Selection(root, in_git=is_in_git(root))
    wanted = [_include(pattern) for pattern in include]
    if selection.in_git:
        _select_by_git(selection, "", explain)
    else:
        _select_by_walking(selection)
    if wanted:
        _select_included(selection, wanted)
    _refuse(selection, wanted)
    if not selection.taken:
        why = "git or .jobignore ignores all of it" if selection.in_git else "it has no files"
        raise CommandError(f"{folder}: nothing to package: {why}", _REFUSED)
    return selection


# --- by git ---------------------------------------------------------------------------------------


def is_in_git(root: str) -> bool:
    found = git(root, "rev-parse", "--is-inside-work-tree")
    if found is not None:
        return found.strip() == b"true"
    if any(os.path.lexists(f"{above}/.git") for above in (root, *map(str, Path(root).parents))):
        note(f"note: git does not answer for {root}: .gitignore files are read without it")
    return False


def git(root: str, *words: str, given: bytes = b"") -> bytes | None:
    """What git prints; None: it fails, or there is no git."""
    command = ["git", "-C", root, "-c", "core.quotePath=false", *words]
    try:
        done = subprocess.run(command, input=given, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _select_by_git(selection: Selection, below: str, explain: bool) -> None:
    """`below`: a repository in the folder, such as a submodule, with a slash at its end."""
    here = f"{selection.root}/{below}"
    rules = IgnoreRules(selection.root, [JOB_IGNORE])
    names = _names(here)
    for name in sorted(names):
        path = f"{below}{name.removesuffix('/')}"
        try:
            mode = os.lstat(f"{selection.root}/{path}").st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue  # git tracks it, and it has been deleted
        if rule := rules.verdict(path, stat.S_ISDIR(mode)):
            selection.left_out[path] = str(rule)
        elif not stat.S_ISDIR(mode):
            selection.taken[path] = names[name]
        elif os.path.lexists(f"{selection.root}/{path}/.git"):
            _select_by_git(selection, f"{path}/", explain)
    if explain:
        selection.left_out.update(_ignored_by_git(here, below))


def _names(here: str) -> dict[str, str]:
    """What git tracks or would add, each with its rule. A tag before each name tells which."""
    found = git(here, "ls-files", "-t", "-c", "-o", "--exclude-standard", "-z")
    if found is None:
        raise CommandError(f"{here}: git ls-files fails", 1)
    tagged = [os.fsdecode(each) for each in found.split(b"\0") if each]
    return {each[2:]: UNTRACKED if each[0] == "?" else TRACKED for each in tagged}


def _ignored_by_git(here: str, below: str) -> Iterator[tuple[str, str]]:
    listed = git(here, "ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z") or b""
    told = git(here, "check-ignore", "-v", "-z", "--stdin", given=listed) or b""
    fields = [os.fsdecode(each) for each in told.split(b"\0")]
    for source, line, pattern, name in zip(*[iter(fields)] * 4, strict=False):
        yield f"{below}{name}", f"{source}:{line}: {pattern}"


# --- by walking -----------------------------------------------------------------------------------


def _select_by_walking(selection: Selection) -> None:
    rules = IgnoreRules(selection.root, [".gitignore", JOB_IGNORE])
    for path, is_folder in _walk(selection.root, rules, selection.left_out):
        if not is_folder:
            selection.taken[path] = FOUND


def _walk(
    root: str, rules: IgnoreRules | None, left_out: dict[str, str]
) -> Iterator[tuple[str, bool]]:
    """Everything below `root` that no rule leaves out, and whether it is a folder. Follows no
    link, and never enters .git."""
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(f"{root}/{folder}") as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            path = f"{folder}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git":
                left_out[path] = "never part of a package"
            elif rules and (rule := rules.verdict(path, is_folder)):
                left_out[path] = str(rule)
            else:
                yield path, is_folder
                if is_folder:
                    folders.append(f"{path}/")


# --- --include, and what is refused ---------------------------------------------------------------


def _include(pattern: str) -> IgnoreRule:
    rule = parse("--include", pattern)
    if rule is None or rule.takes:
        raise UsageError(f"--include {pattern!r}: is not a pattern such as `*.ckpt` or `data/`")
    return rule


def _select_included(selection: Selection, wanted: Sequence[IgnoreRule]) -> None:
    for path, is_folder in _walk(selection.root, None, {}):
        if not is_folder and (rule := _matching(wanted, path)):
            selection.taken.setdefault(path, f"--include {rule.text}")
            selection.left_out.pop(path, None)


def _matching(rules: Sequence[IgnoreRule], path: str) -> IgnoreRule | None:
    """The first rule that matches the path, or a folder above it."""
    parts = path.split("/")
    for rule in rules:
        for end in range(1, len(parts) + 1):
            if rule.matches("/".join(parts[:end]), end < len(parts)):
                return rule
    return None


def _refuse(selection: Selection, wanted: Sequence[IgnoreRule]) -> None:
    if len(selection.taken) > manifest.FILES_MAX:
        raise CommandError(
            f"{selection.root}: {len(selection.taken)} files, and a package has"
            f" {manifest.FILES_MAX} at most: name folders in {JOB_IGNORE}",
            _REFUSED,
        )
    unwanted = [(why, [_include(text) for text in texts]) for why, texts in _UNWANTED]
    refused: list[tuple[int, str, str]] = []
    for path in selection.taken:
        try:
            manifest.check_path(path)
        except BadPackage as error:
            raise CommandError(
                f"{error}: rename it, or name it in {JOB_IGNORE}", _REFUSED
            ) from None
        status = os.lstat(f"{selection.root}/{path}")
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise CommandError(
                f"{path}: is neither a file nor a link: name it in {JOB_IGNORE}", _REFUSED
            )
        if stat.S_ISLNK(status.st_mode) or _matching(wanted, path):
            continue
        if status.st_size > FILE_BYTES_MAX:
            refused.append((status.st_size, path, "large"))
            continue
        for why, rules in unwanted:
            if _matching(rules, path):
                refused.append((status.st_size, path, why))
                break
    if refused:
        raise CommandError(_refusal(refused), _REFUSED)


def _refusal(refused: list[tuple[int, str, str]]) -> str:
    refused.sort(key=lambda each: (-each[0], each[1]))
    named = [f"{manifest.quote(path)} ({why}, {_size(size)})" for size, path, why in refused]
    shown = ", ".join(named[:NAMED_MAX])
    if len(refused) > NAMED_MAX:
        shown += f" and {len(refused) - NAMED_MAX} more"
    verb = "does" if len(refused) == 1 else "do"
    return (
        f"{shown} {verb} not belong into a package: name them in {JOB_IGNORE},"
        " or take them with --include PATTERN"
    )


def _size(size: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
