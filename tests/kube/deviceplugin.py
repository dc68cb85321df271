"""Pretended GPUs for a real kubelet: `python -m tests.kube.deviceplugin FOLDER DEVICES`.

FOLDER is where the kubelet has its socket, DEVICES a file with a line `ID HEALTH` for each GPU. The
file may change at any time. Like NVIDIA's plugin, this one registers again when the kubelet
restarts, and tells a container by NVIDIA_VISIBLE_DEVICES which GPUs it was given.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

RESOURCE = "nvidia.com/gpu"
SOCKET = "pretended.sock"
LOOK_EVERY_SECONDS = 0.1

messages: Any
services: Any  # made from the .proto at the start, so mypy does not know its types
messages, services = grpc.protos_and_services("tests/kube/deviceplugin.proto")


class Plugin(services.DevicePluginServicer):  # type: ignore[misc]  # see above
    def __init__(self, devices: Path) -> None:
        self._devices = devices
        self.over = threading.Event()

    def GetDevicePluginOptions(self, request: Any, context: grpc.ServicerContext) -> Any:
        return messages.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        told = None
        while context.is_active() and not self.over.is_set():
            lines = self._devices.read_text().split("\n")
            if lines != told:
                told = lines
                pairs = [line.split() for line in lines if line]
                devices = [messages.Device(ID=name, health=health) for name, health in pairs]
                yield messages.ListAndWatchResponse(devices=devices)
            self.over.wait(LOOK_EVERY_SECONDS)

    def Allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        answers = [
            messages.ContainerAllocateResponse(
                envs={"NVIDIA_VISIBLE_DEVICES": ",".join(asked.devices_ids)}
            )
            for asked in request.container_requests
        ]
        return messages.AllocateResponse(container_responses=answers)


def main(folder: Path, devices: Path) -> None:
    """Runs one server for each life of the kubelet, which clears the folder when it starts."""
    kubelet = folder / "kubelet.sock"
    while True:
        while not kubelet.exists():
            threading.Event().wait(LOOK_EVERY_SECONDS)
        life = kubelet.stat().st_ino
        plugin = Plugin(devices)
        server = grpc.server(futures.ThreadPoolExecutor(4))
        services.add_DevicePluginServicer_to_server(plugin, server)
        server.add_insecure_port(f"unix://{folder / SOCKET}")
        server.start()
        _register(kubelet)
        while kubelet.exists() and kubelet.stat().st_ino == life and (folder / SOCKET).exists():
            threading.Event().wait(LOOK_EVERY_SECONDS)
        plugin.over.set()
        server.stop(grace=None).wait()


def _register(kubelet: Path) -> None:
    options = [("grpc.default_authority", "localhost")]
    request = messages.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE)
    with grpc.insecure_channel(f"unix://{kubelet}", options=options) as channel:
        services.RegistrationStub(channel).Register(request, wait_for_ready=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
