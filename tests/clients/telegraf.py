"""Builds Telegraf with a few plugins from its Go module: `make telegraf`.

Its own folder is where it is built, because its go.mod replaces modules. Built once, in the cache
outside the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kube.build import ENVIRONMENT, BuildError, cache, go_program

MODULE, VERSION = "github.com/influxdata/telegraf", "v1.37.2"
SUM = "h1:mYr0I/suEw9+UM4KrCFuYuzJuq/e99cINniIwqO6ykw="
PLUGINS = (
    *("inputs.cpu", "inputs.disk", "inputs.mem", "inputs.nvidia_smi", "inputs.system"),
    *("inputs.influxdb_listener", "inputs.socket_listener"),
    *("outputs.influxdb", "parsers.influx", "serializers.influx"),
)


def program() -> Path | None:
    """None: it is not built, and the machine has none."""
    path = cache().with_name(f"telegraf-{VERSION}") / "telegraf"
    found = shutil.which("telegraf")
    return path if path.exists() else Path(found) if found else None


def build() -> Path:
    if found := program():
        return found
    go, folder = go_program(), cache().with_name(f"telegraf-{VERSION}")
    told = _run([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], Path("/"))
    module = json.loads(told)
    if module["Sum"] != SUM:
        raise BuildError(f"{MODULE} {VERSION} is not what it was: its sum is {module['Sum']}")
    source = folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile)
    tags = ",".join(["custom", *PLUGINS])
    part = folder / "telegraf.part"
    _run(
        [
            *(go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-tags", tags),
            *("-ldflags", "-s -w", "-o", part, "./cmd/telegraf"),
        ],
        source,
    )
    shutil.rmtree(source)
    return part.rename(folder / "telegraf")


def _run(words: list[str | Path], folder: Path) -> str:
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise BuildError(f"Telegraf {VERSION} cannot be built: see above")
    return done.stdout


if __name__ == "__main__":
    try:
        print(f"telegraf: {build()}")
    except BuildError as error:
        sys.exit(f"telegraf: {error}")
