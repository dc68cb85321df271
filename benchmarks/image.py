"""What the daemon's image costs: `python -m benchmarks.image --json`.

The image of deploy/Dockerfile, built without Docker and run by runc, with a read-only root, as
deploy/kubernetes asks for. Needs root, and Debian's buildah, debootstrap and runc; without them it
says so, and measures nothing.

    pulled_mb      what a node fetches, compressed
    unpacked_mb    what it then has on its disk
    ready_seconds  from `runc run` until the daemon says that it is ready, on an empty state: the
                   median, files being cached
    runs           of these
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
