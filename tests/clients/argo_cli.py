"""Builds the command `argo`: `make argo`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clients.go_module import GoModule
from tests.kube.build import BuildError


def _add_pages(source: Path) -> None:
    """It embeds the pages of its server, which the module lacks; the command needs none."""
    pages = source / "ui" / "dist" / "app"
    pages.mkdir(parents=True, exist_ok=True)
    (pages / "index.html").touch()


ARGO = GoModule(
    "argo",
    "github.com/argoproj/argo-workflows/v3",
    "v3.7.14",
    "h1:ptbGB8ljmDgV3PlX0dEMfHwuq1P9DklQ5Hi4XzHBVLA=",
    "./cmd/argo",
    prepare=_add_pages,
)


if __name__ == "__main__":
    try:
        print(f"argo: {ARGO.build()}")
    except BuildError as error:
        sys.exit(f"argo: {error}")
