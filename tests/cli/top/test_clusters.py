"""The view of clusters: side by side, what each one is, and how to change to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.configuration.file import read_config
from rmqcli.cli.configuration.project import read_project
from rmqcli.cli.options import make_common
from rmqcli.cli.top.profiles import cluster_in_use, clusters_of_profiles
from rmqcli.errors import ConfigError
from rmqcli.testing import faults
from tests.cli.top.screen import cluster_of, on_screen
from tests.cli.top.test_app import commit
from tests.cli.top.test_command import LEFT, in_terminal, read_until
from tests.kit.waiting import PATIENCE_S


@pytest.fixture
def shop():
    """A cluster with the group `billing`, and two brokers, of which one is down."""
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["x"] * 7, broker="broker-a")
        commit(cluster, "billing", "orders", 3)
        cluster.broker("broker-b").hang()
        yield cluster


@pytest.fixture
def stage():
    """A cluster with the topic `drafts`, and the group `review`, which is STOPPED."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("drafts", queues=1)
        cluster.send("drafts", ["x"])
        commit(cluster, "review", "drafts", 0)
        yield cluster


def of_profile(name, cluster, **settings):
    namesrv = cluster if isinstance(cluster, str) else cluster.namesrv
    return cluster_of(
        namesrv,
        name=name,
        title=f"profile {name}",
        flags=("--profile", name),
        timeout_ms=5_000,
        **settings,
    )


@pytest.mark.slow
def test_clusters_are_side_by_side_the_worst_first_with_the_command(shop, stage):
    others = [of_profile("dead", "127.0.0.1:1"), of_profile("shop", shop)]

    async def story(screen):
        await screen.press("5")
        await screen.until("no answer ", " 1/2 ", " 1/1 ")
        lines = screen.lines
        table = lines[lines.index(screen.line("CLUSTER")) :]
        assert [line.split()[:2] for line in table[1:4]] == [
            ["dead", "no"],
            ["shop", "problem"],
            ["test", "warning"],
        ]
        row = screen.line("shop ").split()
        assert row[:6] == ["shop", "problem", "1/1", "1/2", "-", "1+"]
        assert screen.line("test ").split()[:6] == [
            *("test", "warning", "1/1", "1/1", "1", "1")
        ]
        assert screen.line("$") == "$ rmq cluster --profile dead"
        await screen.press("down")
        await screen.until("$ rmq cluster --profile shop")
        assert screen.line("shop: ").startswith(f"shop: namesrv {shop.namesrv}; read")
        assert "broker-b (broker-answers): " in screen.text
        assert "groups        at least 1: 1 UNKNOWN; " in screen.text
        await screen.press("down")
        await screen.until("$ rmq cluster -n here:9876")
        assert "groups        1: 1 STOPPED; 1 message waits" in screen.text

    on_screen(
        stage.namesrv,
        story,
        others=lambda: others,
        flags=("-n", "here:9876"),
        size=(110, 40),
    )


@pytest.mark.slow
def test_enter_opens_a_cluster_and_all_views_are_of_it(shop, stage):
    shop.broker("broker-b").resume()

    async def story(screen):
        await screen.until("review")
        await screen.press("5")
        await screen.until("shop", "$ rmq cluster")
        await screen.press("f")
        await screen.type("shop")
        await screen.press("enter")
        await screen.until("billing", "rmq top  profile shop")
        assert "review" not in screen.text
        assert screen.line("$") == "$ rmq lag --watch 200ms --profile shop"
        await screen.press("enter")
        await screen.until("billing has 4 messages to read")
        await screen.press("4")
        await screen.until("access-control", "try: rmq")
        assert screen.line("try:").endswith(" --profile shop")
        await screen.press("2")
        await screen.until("orders")
        await screen.press("5", "f")
        await screen.type("test")
        await screen.press("enter")
        await screen.until("review", "rmq top  test")
        assert screen.line("$") == "$ rmq lag --watch 200ms"

    on_screen(stage.namesrv, story, others=lambda: [of_profile("shop", shop)])


@pytest.mark.slow
def test_a_cluster_that_becomes_silent_is_said_to_be_with_the_time(shop, stage):
    """Its last numbers are not shown as if they were new, and others are read."""
    shop.broker("broker-b").resume()

    async def story(screen):
        await screen.press("5")
        await screen.until("shop ", " 2/2 ", " 1/1 ")
        rule = shop.faults.add(faults.drop_request(), broker="namesrv")
        await screen.press("space")
        await screen.until("no answer since ")
        row = screen.line("shop ").split()
        assert row[:9] == ["shop", "no", "answer", *"-" * 6]
        assert screen.line("test ").split()[1] == "warning"
        shop.faults.remove(rule)
        await screen.press("space")
        await screen.until(" 2/2 ")
        assert "no answer" not in screen.text

    on_screen(
        stage.namesrv,
        story,
        others=lambda: [of_profile("shop", shop)],
        size=(160, 30),
    )


def test_a_cluster_that_hangs_keeps_no_other_waiting(shop, stage):
    """It is waited for for an hour, and the other is shown meanwhile."""
    shop.faults.add(faults.drop_request(), broker="namesrv")
    patient = cluster_of(shop.namesrv, name="shop", timeout_ms=3_600_000)

    async def story(screen):
        await screen.press("5")
        await screen.until(" 1/1 ")
        assert screen.line("shop ").split()[1] == "reading"
        await screen.press("1")
        await screen.until("review")

    on_screen(stage.namesrv, story, others=lambda: [patient])


def test_profiles_that_cannot_be_listed_are_said_and_the_cluster_in_use_is_shown(stage):
    def others():
        raise ConfigError("config.toml: not valid TOML")

    async def story(screen):
        await screen.press("5")
        await screen.until("profiles: config.toml: not valid TOML", " 1/1 ")

    on_screen(stage.namesrv, story, others=others)


@pytest.fixture
def write_profiles(monkeypatch):
    """Write the user's file of profiles."""
    for name in ("NAMESRV_ADDR", "ROCKETMQ_ENDPOINTS", "RMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)

    def write(text):
        folder = Path(os.environ["XDG_CONFIG_HOME"], "rmq")
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath("config.toml").write_text(text, encoding="utf-8")
        folder.joinpath("config.toml").chmod(0o600)

    return write


PROFILES = """
[profiles.prod]
namesrv = ["prod-a:1", "prod-b:1"]
access_key = "the-access-key"
secret_key = "the-secret-key"
tls_insecure = true
addresses = { "172.18.0.3:10911" = "127.0.0.1:10911" }
protected = true

[profiles.old]
namesrv = "old:1"
read_only = true

[profiles.cloud]
endpoints = "cloud:8081"

[profiles.asking]
namesrv = "asking:1"
credentials_command = ["pass", "show", "asking"]

[profiles.broken]
namesrv = 9876

[profiles.open]
namesrv = "open:1"
"""


def test_each_profile_has_its_own_servers_credentials_and_rules(write_profiles):
    write_profiles(PROFILES)
    common = make_common(namesrv=("here:1",), timeout=7_000)
    found = {
        each.name: each
        for each in clusters_of_profiles(common, os.environ, allow_changes=True)
    }
    assert [
        (each.name, each.servers, each.rule, each.allow_changes, each.asks)
        for each in found.values()
    ] == [
        ("prod", "namesrv prod-a:1;prod-b:1", "protected", False, False),
        ("old", "namesrv old:1", "read-only", False, False),
        ("cloud", "endpoints cloud:8081", "", True, False),
        ("asking", "namesrv asking:1", "", True, True),
        ("broken", "", "", False, False),
        ("open", "namesrv open:1", "", True, False),
    ]
    config = found["prod"].config()
    assert config.namesrv == ("prod-a:1", "prod-b:1")
    assert config.timeout_ms == 7_000
    assert config.credentials is not None
    assert config.credentials.access_key == "the-access-key"
    assert config.tls is not None
    assert config.address_map == (("172.18.0.3:10911", "127.0.0.1:10911"),)
    assert found["prod"].flags == ("--profile", "prod")
    config = found["open"].config()
    assert (config.credentials, config.tls, config.address_map) == (None, None, ())
    assert not any("the-" in repr(each) for each in found.values())


def test_without_allow_changes_no_cluster_can_be_changed(write_profiles):
    write_profiles(PROFILES)
    found = clusters_of_profiles(make_common(), os.environ, allow_changes=False)
    assert not any(each.allow_changes for each in found)


def test_what_a_project_forbids_for_a_profile_holds(
    write_profiles, tmp_path, monkeypatch
):
    write_profiles(PROFILES)
    tmp_path.joinpath(".rmq.toml").write_text('profile = "open"\nread_only = true\n')
    monkeypatch.chdir(tmp_path)
    common = make_common(namesrv=("here:1",))
    found = clusters_of_profiles(common, os.environ, allow_changes=True)
    assert [(e.rule, e.allow_changes) for e in found if e.name == "open"] == [
        ("read-only", False)
    ]


def test_the_cluster_in_use_has_the_name_of_its_profile_or_of_its_project(
    write_profiles, tmp_path
):
    write_profiles(PROFILES)
    common = make_common(profile=read_config(os.environ).profile("open"))
    found = cluster_in_use(common, allow_changes=False)
    assert (found.name, found.title) == ("open", "profile open")
    path = tmp_path / "shop" / ".rmq.toml"
    path.parent.mkdir()
    path.write_text('namesrv = "here:1"\n')
    project = read_project(str(path), os.environ)
    found = cluster_in_use(make_common(profile=project), allow_changes=False)
    assert (found.name, found.title) == ("project shop", "project shop")
    found = cluster_in_use(make_common(namesrv=("there:1",)), allow_changes=False)
    assert (found.name, found.title) == ("there:1", "there:1")


@pytest.mark.slow
def test_no_secret_is_shown_and_what_is_wrong_with_a_profile_is(write_profiles, stage):
    """Not even enter reads a profile that cannot be used, or runs what may ask."""
    write_profiles(PROFILES)
    common = make_common(namesrv=(stage.namesrv,))
    first = cluster_in_use(common, allow_changes=False)

    async def story(screen):
        await screen.press("5")
        await screen.until(" 1/1 ", "prod", "no answer", "open")
        for name, status, text in (
            (
                "asking",
                "not asked",
                "enter runs the command that prints its credential",
            ),
            ("broken", "not read", "profile broken: namesrv must be text or a list"),
            (
                "cloud",
                "not read",
                "needs a name server, and profile cloud names a prox",
            ),
        ):
            await screen.press("home", "f")
            await screen.type(name)
            await screen.until(text)
            assert f"{name}  " in screen.text
            assert status in screen.line(f"{name}  ")
            assert f"$ rmq cluster --profile {name}" in screen.text
        await screen.press("enter")
        await screen.until("not read")
        assert screen.lines[0].startswith(" rmq top  test")
        await screen.press("home", "f")
        await screen.type("prod")
        await screen.until("prod: namesrv prod-a:1;prod-b:1; protected")
        assert "the-access-key" not in screen.text
        assert "the-secret-key" not in screen.text

    on_screen(
        stage.namesrv,
        story,
        others=lambda: clusters_of_profiles(common, os.environ, allow_changes=False),
        size=(160, 40),
        timeout_ms=5_000,
    )
    assert first.name == stage.namesrv


@pytest.mark.slow
def test_a_command_for_credentials_runs_on_the_terminal_when_its_cluster_is_opened(
    write_profiles, tmp_path, stage
):
    """It may ask for a password; meanwhile, nothing is drawn over its question."""
    acl = tmp_path / "shop.acl"
    acl.write_text("accessKey: someone\nsecretKey: secret\n")
    words = ["sh", "-c", f"printf 'Password: ' >&2; read word; cat {acl}"]
    write_profiles(
        f'[profiles.shop]\nnamesrv = "{stage.namesrv}"\n'
        f"credentials_command = {json.dumps(words)}\n"
    )
    process, ours = in_terminal(["top", "-n", stage.namesrv])
    try:
        read_until(ours, b"review")
        os.write(ours, b"5")
        read_until(ours, b"not asked")
        os.write(ours, b"/shop\r")
        read_until(ours, b"(1 by status)")
        os.write(ours, b"\r")
        seen = read_until(ours, b"Password: ")
        assert LEFT in seen
        os.write(ours, b"word\n")
        read_until(ours, b"profile shop")
        read_until(ours, b"--watch 2s --profile shop")
        os.write(ours, b"q")
        read_until(ours, LEFT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
