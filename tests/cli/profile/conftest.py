"""A file of profiles, and a command that shows what it would do with one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqcli.cli.main import run
from tests.cli.profile.probe import TABLE

PROFILES = """\
use = "dev"

[profiles.dev]
namesrv = "dev:1"
output = "json"

[profiles.prod]
namesrv = ["prod-a:1", "prod-b:1"]
access_key = "prod-user"
secret_key = "prod-secret"
tls_ca = "ca.pem"
addresses = { "172.18.0.3:10911" = "127.0.0.1:10911" }

[profiles.cloud]
endpoints = "cloud:8081"
plaintext = true
"""


@pytest.fixture(autouse=True)
def _environment_of_no_cluster(monkeypatch):
    for name in ("NAMESRV_ADDR", "ROCKETMQ_ENDPOINTS", "RMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config_file():
    """The path of the user's file of profiles, in its folder with a `ca.pem`."""
    folder = Path(os.environ["XDG_CONFIG_HOME"], "rmq")
    folder.mkdir(parents=True)
    (folder / "ca.pem").touch()
    return folder / "config.toml"


@pytest.fixture
def write(config_file):
    """Writes the user's file of profiles."""

    def write_it(text, mode=0o600):
        config_file.write_text(text, encoding="utf-8")
        config_file.chmod(mode)
        return config_file

    return write_it


@pytest.fixture
def profiles(write):
    """The file with the profiles dev, which is in use, prod and cloud."""
    return write(PROFILES)


@pytest.fixture
def probe(capfd):
    """Runs the probe; returns its exit code, what it shows by name, and stderr."""

    def run_it(*arguments, command="probe"):
        code = run([command, *arguments], table=TABLE)
        out, err = capfd.readouterr()
        shown = dict(line.split(" ", 1) for line in out.splitlines())
        return code, shown, err

    return run_it
