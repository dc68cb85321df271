"""How the cluster's programs get into the cache, tested with a shell script in place of Go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kube.build import ALL, STAGES
from tests.support import eventually

PROGRAMS = sorted(name for tool in ALL for name in tool.programs)
Build = Callable[..., subprocess.Popen[str]]

# It writes each program in two pieces, and waits between them while a file `wait` exists.
GO = """#!/bin/sh
case $1 in
    env) echo go1.26.0 ;;
    list) echo "$FOLDER/module" ;;
    build)
        while [ "$1" != -o ]; do shift; done
        echo "$2" >> "$FOLDER/built"
        test ! -e "$FOLDER/fail" || { echo 'go: no such module' >&2; exit 1; }
        printf half > "$2"
        while [ -e "$FOLDER/wait" ]; do sleep 0.05; done
        printf whole > "$2" ;;
esac
"""


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Begins a build in the cache `tmp_path/cache`."""
    (tmp_path / "bin").mkdir()
    go = tmp_path / "bin" / "go"
    go.write_text(GO)
    go.chmod(0o755)
    for stage in STAGES:
        path = tmp_path / "module" / "kustomize" / "stage" / stage
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("stage")
    begun: list[subprocess.Popen[str]] = []

    def begin(**environment: str) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.kube.build"],
                env={
                    "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                    "XDG_CACHE_HOME": str(tmp_path / "cache"),
                    "FOLDER": str(tmp_path),
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def cached(folder: Path) -> dict[str, str]:
    files = (folder / "cache" / "epoch-scheduler" / "kube").glob("*/*")
    return {path.name: path.read_text() for path in files if path.suffix != ".yaml"}


def built(folder: Path) -> list[str]:
    lines = (folder / "built").read_text().splitlines()
    return [Path(line).name.removesuffix(".part") for line in lines]


def test_each_program_is_built_once_and_says_so(build: Build, tmp_path: Path) -> None:
    out, err = (first := build()).communicate()
    assert first.returncode == 0, err
    assert cached(tmp_path) == dict.fromkeys(PROGRAMS, "whole")
    assert "kube: building kubelet 1.36.3 (6 of 9)\n" in err
    assert "kube: etcd 3.6.16 in " in out
    assert build().communicate()[1] == ""
    assert sorted(built(tmp_path)) == PROGRAMS


def test_a_killed_build_leaves_no_half_program_and_the_next_goes_on(
    build: Build, tmp_path: Path
) -> None:
    (tmp_path / "wait").touch()
    killed = build()
    eventually(lambda: cached(tmp_path) == {"etcd.part": "half"})
    killed.kill()
    killed.wait()
    (tmp_path / "wait").unlink()
    assert build().wait() == 0
    assert cached(tmp_path) == dict.fromkeys(PROGRAMS, "whole")


def test_an_interrupted_build_removes_what_is_half(build: Build, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    interrupted = build()
    eventually(lambda: cached(tmp_path) == {"etcd.part": "half"})
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait() == 130
    assert cached(tmp_path) == {}


def test_two_builds_at_once_build_everything_once(build: Build, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    first = build()
    eventually(lambda: cached(tmp_path) == {"etcd.part": "half"})
    second = build()
    assert second.stderr is not None
    assert "another build is at work" in second.stderr.readline()
    (tmp_path / "wait").unlink()
    assert (first.wait(), second.wait()) == (0, 0)
    assert sorted(built(tmp_path)) == PROGRAMS


def test_what_is_given_is_not_built(build: Build, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (given / name).touch()
    out, _ = build(KUBEBUILDER_ASSETS=str(given)).communicate()
    assert f"kube: etcd 3.6.16 in {given}\n" in out
    assert {*built(tmp_path)} == {*PROGRAMS} - {"etcd", "kube-apiserver"}


def test_what_cannot_be_built_is_named(build: Build, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    failed = build()
    _, err = failed.communicate()
    assert failed.returncode == 1
    assert err.endswith(
        "go: no such module\nkube: etcd 3.6.16 cannot be built; go says why above\n"
    )


def test_a_cache_that_cannot_be_written_is_named(build: Build, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    failed = build()
    _, err = failed.communicate()
    assert failed.returncode == 1
    assert err.startswith(f"kube: the cache folder {tmp_path}/cache/epoch-scheduler/kube cannot")
    assert len(err.splitlines()) == 1
