"""Builds Telegraf with a few plugins: `make telegraf`."""

from __future__ import annotations

import sys

from tests.clients.go_module import GoModule
from tests.kube.build import BuildError

PLUGINS = (
    *("inputs.cpu", "inputs.disk", "inputs.mem", "inputs.nvidia_smi", "inputs.system"),
    *("inputs.influxdb_listener", "inputs.socket_listener"),
    *("outputs.influxdb", "parsers.influx", "serializers.influx"),
)
TELEGRAF = GoModule(
    "telegraf",
    "github.com/influxdata/telegraf",
    "v1.37.2",
    "h1:mYr0I/suEw9+UM4KrCFuYuzJuq/e99cINniIwqO6ykw=",
    "./cmd/telegraf",
    ("-tags", ",".join(["custom", *PLUGINS])),
)


if __name__ == "__main__":
    try:
        print(f"telegraf: {TELEGRAF.build()}")
    except BuildError as error:
        sys.exit(f"telegraf: {error}")
