"""run-scheduler --requirements with Debian's buildah and docker-registry, and a real pip."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.image_building import BUILDERS, NAME, required_image
from tests.clients.dockerd import CLIENT, HOST, dockerd, needs_docker
from tests.clients.influxd import free_ports
from tests.clients.registry import (
    PASSWORD,
    Registry,
    builder_environment,
    login,
    needs_builder,
    package_index,
    push_base,
    registry,
)
from tests.clients.token_server import token_server
from tests.support import BIN, Daemon

PACKAGE = "weathermodels"
BASE = "python"
BUILD_SECONDS = 300.0

pytestmark = [pytest.mark.clients, needs_builder]


@dataclass
class Lab:
    """A laptop with buildah, a registry, and an index of packages that asks for a password."""

    registry: Registry
    daemon: Daemon
    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "run-scheduler", "--num_gpus", "0", *words, "job", "--", "/bin/true"],
            cwd=self.folder,
            env={
                **os.environ,
                **self.environment,
                "SCHEDULER_SERVER": "",
                "SCHEDULER_CONTEXT": "lab",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )

    def image(self, job: str) -> str:
        told = self.daemon.run("scheduler-state", job.strip(), "--output", "json")
        return str(json.loads(told.stdout)["jobs"][0]["spec"]["image"])

    def jobs(self) -> list[object]:
        told = self.daemon.run("scheduler-state", "--output", "json")
        return list(json.loads(told.stdout)["jobs"])

    def require(self, *lines: str) -> None:
        (self.folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))

    def use(self, builder: str) -> None:
        """This one alone, with all other programs of the machine."""
        folder = self.folder / "only" / builder
        folder.mkdir(parents=True)
        for place in reversed(os.environ["PATH"].split(os.pathsep)):
            for program in Path(place).glob("*"):
                if program.name not in BUILDERS or program.name == builder:
                    (folder / program.name).unlink(missing_ok=True)
                    (folder / program.name).symlink_to(program)
        if builder == "docker":  # the one that belongs to the daemon
            (folder / "docker").unlink()
            (folder / "docker").symlink_to(CLIENT)
        self.environment["PATH"] = str(folder)

    def log_in(self) -> None:
        host = f"127.0.0.1:{self.registry.port}"
        auths = json.dumps({"auths": {host: {"auth": login()}}})
        Path(self.environment["REGISTRY_AUTH_FILE"]).write_text(auths)


@pytest.fixture(scope="module")
def closed_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry"), is_closed=True) as made:
        yield made


@pytest.fixture(scope="module")
def builder(closed_registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("builder")
    environment = builder_environment(folder)
    host = f"127.0.0.1:{closed_registry.port}"
    auths = json.dumps({"auths": {host: {"auth": login()}}})
    Path(environment["REGISTRY_AUTH_FILE"]).write_text(auths)
    push_base(closed_registry, BASE, environment)
    return environment


@pytest.fixture
def lab(
    daemon: Daemon, closed_registry: Registry, builder: dict[str, str], tmp_path: Path
) -> Iterator[Lab]:
    with package_index(tmp_path / "index", PACKAGE) as index:
        config = tmp_path / "config"
        (config / "pip").mkdir(parents=True)
        (config / "pip/pip.conf").write_text(f"[global]\nindex-url = {index}\n")
        (config / "epoch-scheduler").mkdir()
        file = config / "epoch-scheduler/config.yaml"
        file.write_text(
            f"contexts:\n  lab:\n    server: {daemon.address}\n"
            f"    registry_url: {closed_registry.url}\n"
        )
        # The builder finds its policy in the home, and pip its settings here.
        environment = {**builder, "XDG_CONFIG_HOME": str(config), "PIP_CONFIG_FILE": ""}
        made = Lab(closed_registry, daemon, tmp_path, environment)
        made.log_in()
        yield made


@pytest.mark.parametrize("builder_name", ["buildah", "podman"])
def test_requirements_are_in_the_image_that_the_job_gets(lab: Lab, builder_name: str) -> None:
    if not shutil.which(builder_name):
        pytest.skip(f"needs {builder_name}")
    lab.use(builder_name)
    before = lab.registry.tags(NAME)
    lab.require(f"{PACKAGE}==1.0  # of the lab, with {builder_name}")
    done = lab.run("--requirements", "requirements.txt", "--base_image", BASE)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[0-9a-f-]{36}\n", done.stdout), "stdout is the job's id alone"
    host = f"127.0.0.1:{lab.registry.port}"
    (tag,) = set(lab.registry.tags(NAME)).difference(before)
    assert lab.image(done.stdout) == f"{host}/{NAME}:{tag}"
    assert f"building {host}/{NAME}:{tag} from {host}/{BASE} with {builder_name}\n" in done.stderr

    # The package is there, and neither the password nor the settings with it.
    layers = [gzip.decompress(layer) for layer in lab.registry.layers(NAME, tag)]
    assert any(b"answer = 42" in layer for layer in layers)
    config = json.dumps(lab.registry.config(NAME, tag)).encode()
    assert not any(PASSWORD.encode() in part for part in (*layers, config))

    # Unchanged, nothing is built and nothing pushed.
    writes = lab.registry.writes()
    again = lab.run("--requirements", "requirements.txt", "--base_image", BASE)
    assert (again.returncode, lab.registry.writes()) == (0, writes)
    assert "building" not in again.stderr
    assert lab.image(again.stdout) == lab.image(done.stdout)

    # --image is the base as well, and a sweep is built for once.
    swept = lab.run(
        "--requirements",
        "requirements.txt",
        "--image",
        BASE,
        *("--sweep", "lr=1,2", "--env", "LR={lr}"),
    )
    assert (swept.returncode, lab.registry.writes()) == (0, writes), swept.stderr

    # Another line is another image, which --dry_run only names.
    lab.require(f"{PACKAGE}==1.0", "# and nothing else")
    done = lab.run("--requirements", "requirements.txt", "--base_image", BASE, "--dry_run")
    assert done.returncode == 0, done.stderr
    assert "would be built from" in done.stderr
    assert set(lab.registry.tags(NAME)) == {tag, *before}
    assert lab.registry.writes() == writes


@needs_docker
def test_docker_builds_and_pushes_as_well(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "docker"
    folder.mkdir()
    before = lab.registry.tags(NAME)
    with dockerd() as address, package_index(folder, PACKAGE, HOST) as index:
        (tmp_path / "config/pip/pip.conf").write_text(
            f"[global]\nindex-url = {index}\ntrusted-host = {HOST}\n"
        )
        lab.use("docker")
        lab.environment |= {"DOCKER_HOST": address, "DOCKER_CONFIG": str(folder)}
        (folder / "config.json").symlink_to(lab.environment["REGISTRY_AUTH_FILE"])
        lab.require(f"{PACKAGE}==1.0  # with docker")
        asks = ("--requirements", "requirements.txt", "--base_image", BASE)
        done = lab.run(*asks)
        assert done.returncode == 0, done.stderr
        (tag,) = set(lab.registry.tags(NAME)).difference(before)
        host = f"127.0.0.1:{lab.registry.port}"
        assert f"building {host}/{NAME}:{tag} from {host}/{BASE} with docker\n" in done.stderr
        layers = [gzip.decompress(layer) for layer in lab.registry.layers(NAME, tag)]
        assert any(b"answer = 42" in layer for layer in layers)
        config = json.dumps(lab.registry.config(NAME, tag)).encode()
        assert not any(PASSWORD.encode() in part for part in (*layers, config))
        again = lab.run(*asks)
        assert (again.returncode, "building" in again.stderr) == (0, False)


def test_a_build_that_fails_submits_nothing(lab: Lab) -> None:
    tags = lab.registry.tags(NAME)
    lab.require("no-such-package-anywhere")
    done = lab.run("--requirements", "requirements.txt", "--base_image", BASE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No matching distribution found for no-such-package-anywhere" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("and says why above")
    assert PASSWORD not in done.stderr
    assert lab.registry.tags(NAME) == tags
    assert lab.jobs() == []


def test_who_may_not_push_is_told_and_nothing_is_submitted(lab: Lab) -> None:
    Path(lab.environment["REGISTRY_AUTH_FILE"]).write_text("{}")
    lab.require(PACKAGE)
    done = lab.run("--requirements", "requirements.txt", "--base_image", BASE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "authentication required" in done.stderr
    assert lab.jobs() == []


def test_a_registry_with_tokens_is_asked_as_its_clients_ask_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    """An image is there, pushed by buildah, so nothing is to be built; but only ada may know."""
    environment = builder_environment(tmp_path)
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    with (
        token_server(tokens, login()) as server,
        registry(tokens, realm=server.realm) as closed,
    ):
        auth = Path(environment["REGISTRY_AUTH_FILE"])
        lab = Lab(closed, daemon, tmp_path, environment)
        lab.log_in()
        (tmp_path / "empty").mkdir()
        lab.require(PACKAGE)
        wanted = required_image(str(tmp_path / "requirements.txt"), BASE, closed.url).name
        for words in (("from", "--name", "made", "scratch"), ("commit", "made", "made")):
            _buildah(environment, *words)
        _buildah(environment, "push", "--tls-verify=false", "made", wanted)

        file = tmp_path / ".config/epoch-scheduler/config.yaml"
        file.parent.mkdir()
        file.write_text(
            f"contexts:\n  lab: {{server: '{daemon.address}', registry_url: '{closed.url}'}}\n"
        )
        asks = ("--requirements", "requirements.txt", "--base_image", BASE, "--dry_run")
        known_before = len(server.asked)
        done = lab.run(*asks)
        assert done.returncode == 0, done.stderr
        assert "would be built" not in done.stderr
        name = wanted.partition("/")[2].rpartition(":")[0]
        assert server.asked[known_before:] == [(f"repository:{name}:pull", True)]

        for wrong in ("{}", json.dumps({"auths": {f"127.0.0.1:{closed.port}": {"auth": "eDp5"}}})):
            auth.write_text(wrong)
            done = lab.run(*asks)
            assert done.returncode == 0, done.stderr
            assert f"note: {wanted} would be built from" in done.stderr


def _buildah(environment: dict[str, str], *words: str) -> None:
    done = subprocess.run(
        ["buildah", *words], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_without_a_builder_one_line_says_so(lab: Lab, tmp_path: Path) -> None:
    lab.require(PACKAGE)
    path = f"{tmp_path / 'bin'}:{BIN}"
    done = lab.run("--requirements", "requirements.txt", "--base_image", BASE, PATH=path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "run-scheduler: --requirements: no docker, podman or buildah works here: run it where one "
        "does, or give --image\n"
    )


@pytest.mark.skipif(not shutil.which("docker"), reason="needs docker's command")
def test_docker_without_its_daemon_is_no_builder(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").symlink_to(str(shutil.which("docker")))
    lab.require(PACKAGE)
    path = f"{tmp_path / 'bin'}:{BIN}"
    none = f"unix://{tmp_path}/none.sock"
    done = lab.run(
        *("--requirements", "requirements.txt", "--base_image", BASE), PATH=path, DOCKER_HOST=none
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "no docker, podman or buildah works here (" in done.stderr
    assert "none.sock" in done.stderr


def test_a_registry_that_is_away_is_told_before_anything_is_built(lab: Lab) -> None:
    file = lab.folder / "config/epoch-scheduler/config.yaml"
    (port,) = free_ports(1)
    file.write_text(file.read_text().replace(str(lab.registry.port), str(port)))
    lab.require(PACKAGE)
    done = lab.run("--requirements", "requirements.txt", "--base_image", BASE)
    assert (done.returncode, done.stdout) == (3, "")
    told = f"cannot reach the registry 127.0.0.1:{port}: Connection refused"
    assert done.stderr == f"run-scheduler: {told}\n"


def test_what_the_scheduler_refuses_is_not_built(lab: Lab) -> None:
    lab.require(PACKAGE, "# refused")
    tags = lab.registry.tags(NAME)
    words = ("--requirements", "requirements.txt", "--base_image", BASE, "--num_gpus", "99")
    done = lab.run(*words)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert lab.registry.tags(NAME) == tags
    assert "building" not in done.stderr
