"""The proxy does what it is told to the requests of the real client library, and nothing else."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import urllib3
from kubernetes import client, config, watch

from tests.kube.control import LOOPBACK, ControlPlane
from tests.kube.proxy import Answer, Delay, Expire, Proxy, Reset, Silence
from tests.support import eventually


@pytest.fixture
def pods(control: ControlPlane, proxy: Proxy) -> Iterator[client.CoreV1Api]:
    """The administrator's client, through the proxy, that tries each request once."""
    with config.new_client_from_config(str(proxy.kubeconfig(control.admin))) as api:
        api.rest_client.pool_manager.connection_pool_kw["retries"] = False
        yield client.CoreV1Api(api)


def config_map(name: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))


def names(control: ControlPlane, namespace: str) -> list[str]:
    return [
        found["metadata"]["name"]
        for found in control.get("configmaps", "--namespace", namespace)["items"]
    ]


def test_what_is_not_to_fail_passes(
    pods: client.CoreV1Api, proxy: Proxy, control: ControlPlane, namespace: str
) -> None:
    proxy.inject(Answer(500), method="DELETE")
    pods.create_namespaced_config_map(namespace, config_map("made"))
    assert names(control, namespace) == ["made"]
    assert [request.method for request in proxy.seen] == ["POST"]


@pytest.mark.parametrize("status", [401, 409, 410, 429, 500, 503])
def test_an_answer_is_a_real_status_and_nothing_is_done(
    pods: client.CoreV1Api, proxy: Proxy, control: ControlPlane, namespace: str, status: int
) -> None:
    fault = proxy.inject(Answer(status, retry_after=7), "POST", "/configmaps")
    with pytest.raises(client.ApiException) as caught:
        pods.create_namespaced_config_map(namespace, config_map("first"))
    assert caught.value.status == status
    assert (caught.value.headers or {})["Retry-After"] == "7"
    assert json.loads(caught.value.body or "")["kind"] == "Status"
    pods.create_namespaced_config_map(namespace, config_map("second"))
    assert names(control, namespace) == ["second"]
    assert [request.method for request in fault.hit] == ["POST"]


@pytest.mark.parametrize("late", [False, True])
def test_a_reset_is_one_and_what_is_late_is_done(
    pods: client.CoreV1Api, proxy: Proxy, control: ControlPlane, namespace: str, late: bool
) -> None:
    proxy.inject(Reset(late), "POST")
    with pytest.raises(urllib3.exceptions.ProtocolError):
        pods.create_namespaced_config_map(namespace, config_map("made"))
    assert names(control, namespace) == (["made"] if late else [])


@pytest.mark.parametrize("late", [False, True])
def test_silence_lasts_until_the_client_gives_up(
    pods: client.CoreV1Api, proxy: Proxy, control: ControlPlane, namespace: str, late: bool
) -> None:
    proxy.inject(Silence(late), "POST")
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        pods.create_namespaced_config_map(
            namespace, config_map("made"), _request_timeout=0.5 if not late else 2
        )
    assert names(control, namespace) == (["made"] if late else [])


def test_what_is_delayed_is_done_later(
    pods: client.CoreV1Api, proxy: Proxy, control: ControlPlane, namespace: str
) -> None:
    proxy.inject(Delay(0.5), "POST")
    began = time.monotonic()
    pods.create_namespaced_config_map(namespace, config_map("made"))
    assert time.monotonic() - began >= 0.5, "load cannot make this shorter"
    assert names(control, namespace) == ["made"]


def test_a_watch_passes_and_can_be_cut(
    pods: client.CoreV1Api, proxy: Proxy, namespace: str
) -> None:
    events = watch.Watch().stream(pods.list_namespaced_config_map, namespace)
    for name in ("one", "two"):
        pods.create_namespaced_config_map(namespace, config_map(name))
        assert next(events)["object"].metadata.name == name
    proxy.cut("watch=true")
    with pytest.raises(urllib3.exceptions.ProtocolError):
        next(events)


def test_a_watch_can_say_that_it_is_expired(
    pods: client.CoreV1Api, proxy: Proxy, namespace: str
) -> None:
    proxy.inject(Expire(), path="watch=true")
    events = watch.Watch().stream(
        pods.list_namespaced_config_map, namespace, resource_version="1", timeout_seconds=60
    )
    with pytest.raises(client.ApiException) as caught:
        next(events)
    assert caught.value.status == 410


def test_the_api_server_may_die_and_come_back_behind_it(
    pods: client.CoreV1Api, control: ControlPlane, namespace: str
) -> None:
    pods.list_namespaced_pod(namespace)
    control.api.kill()
    with pytest.raises(urllib3.exceptions.ProtocolError):
        pods.list_namespaced_pod(namespace)
    control.start()
    eventually(lambda: pods.list_namespaced_pod(namespace).items == [])


def test_when_it_ends_no_connection_is_left(control: ControlPlane) -> None:
    """Otherwise warnings during a later garbage collection would fail another test. Here the API
    server does not close its TLS connection when the proxy does, and TLS waits for that."""
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_verify_locations(control.authority.certificate)
    theirs.load_cert_chain(*control.authority.issue("mute", LOOPBACK))
    with (
        contextlib.closing(socket.create_server((LOOPBACK, 0))) as listening,
        ThreadPoolExecutor(1) as pool,
    ):
        mute = copy.copy(control)
        mute.url = f"https://{LOOPBACK}:{listening.getsockname()[1]}"
        accepted = pool.submit(lambda: theirs.wrap_socket(listening.accept()[0], server_side=True))
        with Proxy(mute).running() as proxy:
            plain = socket.create_connection((LOOPBACK, urlsplit(proxy.url).port))
            with ours.wrap_socket(plain, server_hostname=LOOPBACK) as asking:
                asking.sendall(b"GET / HTTP/1.1\r\n\r\n")
                above = accepted.result()
            while above.recv(1024):  # until the proxy has begun to close
                pass
        above.close()
    gc.collect()
