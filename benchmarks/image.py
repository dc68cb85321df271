"""The size and the start of the daemon's image: `python -m benchmarks.image --json`.

The image of deploy/Dockerfile is built without Docker and run by runc with a read-only root, as in
deploy/kubernetes. Needs root, and Debian's buildah, debootstrap and runc; without them it prints
that and measures nothing.

    pulled_mb      what a node pulls, compressed
    unpacked_mb    the same on the node's disk
    ready_seconds  from `runc run` until the daemon is ready, with an empty database: the median,
                   with cached files
    runs           number of these starts
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.figures import options, show
from tests.deploy import container, image
from tests.deploy.container import Container


def main() -> None:
    given = options(__doc__, runs=10)
    if why := image.missing() or container.missing():
        show(not_measured=why)
        return
    archive = image.archive()
    pulled = archive.stat().st_size
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        config = image.unpack(archive, root)
        taken = []
        for run in range(given.runs):
            began = time.monotonic()
            with Container(root, config, Path(folder, f"state-{run}")):
                taken.append(time.monotonic() - began)
        size = sum(path.lstat().st_size for path in root.rglob("*"))
    show(
        pulled_mb=round(pulled / 1e6, 1),
        unpacked_mb=round(size / 1e6, 1),
        ready_seconds=round(statistics.median(taken), 2),
        runs=given.runs,
    )


if __name__ == "__main__":
    main()
