"""The ports that a job opens: which ones a cluster allows, and how objects name them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scheduler.core.errors import Impossible
from scheduler.core.model import JobSpec

NODE_PORTS = range(30_000, 32_768)  # of a Service; other ports are the node's own
PORT_MAX = 65_535
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class AllowedPorts:
    """Other ports may be those of the node's kubelet, of its SSH server or of the API server."""

    ranges: tuple[range, ...] = (NODE_PORTS,)

    @classmethod
    def parse(cls, text: str) -> AllowedPorts:
        """Raises ValueError."""
        found = []
        for part in text.split(",") if text else ():
            match = _RANGE.fullmatch(part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
            if not 1 <= first <= last <= PORT_MAX:
                raise ValueError(f"{part.strip()!r} is not a port or a range such as 30000-32767")
            found.append(range(first, last + 1))
        return cls(tuple(found))

    def check(self, spec: JobSpec) -> None:
        """Raises Impossible."""
        for host, container in spec.ports:
            if not any(host in allowed for allowed in self.ranges):
                which = f"only the ports {self}" if self.ranges else "no ports"
                raise Impossible(
                    f"--port_mapping {host}:{container}: this cluster opens {which} "
                    "(kubernetes.host_ports)"
                )

    def __str__(self) -> str:
        return ", ".join(
            f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in self.ranges
        )


def service_ports(spec: JobSpec) -> list[dict[str, Any]]:
    """The ports that a Service opens on all nodes."""
    return [
        {"name": f"p{host}", "port": container, "nodePort": host}
        for host, container in _pairs(spec, of_services=True)
    ]


def container_ports(spec: JobSpec) -> list[dict[str, Any]]:
    """The ports of the node itself. The cluster's scheduler keeps other pods from having them."""
    return [
        {"containerPort": container, "hostPort": host}
        for host, container in _pairs(spec, of_services=False)
    ]


def _pairs(spec: JobSpec, of_services: bool) -> Iterator[tuple[int, int]]:
    return (pair for pair in spec.ports if (pair[0] in NODE_PORTS) is of_services)
