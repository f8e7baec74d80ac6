"""Unusable masters are refused before Java is started, with an error that says why."""

from __future__ import annotations

import socket

import pytest

from rmqcli.errors import ConfigError, ConnectError, UsageError
from rmqcli.spark.master import (
    check_kubernetes_image,
    check_master_answers,
    check_master_url,
    is_local,
    standalone_addresses,
)

#: An environment in which no spark-env.sh is found, with any installed PySpark.
NOTHING_SET = {"SPARK_HOME": "/no/such"}


@pytest.mark.parametrize(
    "master",
    [
        None,
        "local",
        "local[2]",
        "local[*,3]",
        "local-cluster[2,1,1024]",
        "spark://h:7077",
        "spark://h:7077,other:7078",
        "spark://[::1]:7077",
        "k8s://https://h:6443",
    ],
)
def test_masters_that_spark_takes_are_taken(master):
    check_master_url(master, NOTHING_SET)


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("foo://", "'foo://' is not a Spark master"),
        ("", "'' is not a Spark master"),
        ("localhost:7077", "'localhost:7077' is not a Spark master"),
        ("yarn-client", "'yarn-client' is not a Spark master"),
        ("spark://", "address '' is not host:port"),
        ("spark://h", "address 'h' is not host:port"),
        ("spark://h:x", "port 'x' of 'h:x' is not in"),
        ("spark://h:7077,i", "address 'i' is not host:port"),
    ],
)
def test_what_is_no_master_is_a_usage_error_with_one_thing_to_try(master, words):
    with pytest.raises(UsageError, match=words) as caught:
        check_master_url(master, NOTHING_SET)
    assert caught.value.hint.startswith("give spark://")


def test_a_spark_connect_server_is_no_master():
    with pytest.raises(UsageError) as caught:
        check_master_url("sc://h:15002/;token=hunter2", NOTHING_SET)
    assert caught.value.message == (
        "sc://h:15002/;token=TOKEN is a Spark Connect server, not a master"
    )
    assert caught.value.hint == "give it as the remote argument"


def test_kubernetes_needs_an_image_with_the_packages_of_the_executors():
    def check(master, settings):
        packages = "lz4", "numpy", "pyarrow"
        check_kubernetes_image(master, settings.get, packages=packages)

    with pytest.raises(ConfigError, match="is not set") as caught:
        check("k8s://https://h:6443", NOTHING_SET)
    assert "conf='spark.kubernetes.container.image=IMAGE'" in caught.value.hint
    assert caught.value.hint.endswith("an image with Python, lz4, numpy, pyarrow")
    for name in ("container.image", "executor.container.image"):
        check("k8s://https://h:6443", {f"spark.kubernetes.{name}": "rmq:1"})
    check("yarn", NOTHING_SET)
    check(None, NOTHING_SET)


def test_yarn_needs_the_settings_of_hadoop(tmp_path):
    with pytest.raises(ConfigError, match="neither HADOOP_CONF_DIR nor") as caught:
        check_master_url("yarn", NOTHING_SET)
    assert "set HADOOP_CONF_DIR" in caught.value.hint
    check_master_url("yarn", {**NOTHING_SET, "HADOOP_CONF_DIR": "/etc/hadoop"})
    check_master_url("yarn", {**NOTHING_SET, "YARN_CONF_DIR": "/etc/hadoop"})
    # Spark reads this file before it checks the variables.
    (tmp_path / "spark-env.sh").touch()
    check_master_url("yarn", {"SPARK_CONF_DIR": str(tmp_path)})


def test_only_masters_in_this_machine_are_local():
    assert is_local(None)
    assert is_local("local")
    assert is_local("local[4]")
    assert not is_local("local-cluster[2,1,1024]")
    assert not is_local("spark://127.0.0.1:7077")


def test_addresses_are_taken_out_of_the_url():
    found = standalone_addresses("spark://h:7077,[::1]:8")
    assert [(each.host, each.port) for each in found] == [("h", 7077), ("::1", 8)]


def test_a_master_that_is_not_there_is_named_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master_answers(f"spark://127.0.0.1:{port}")
    master = f"spark://127.0.0.1:{port}"
    with pytest.raises(
        ConnectError, match="cannot be reached: cannot connect"
    ) as caught:
        check_master_answers(master)
    assert master in caught.value.message
    assert caught.value.address == f"127.0.0.1:{port}"
    assert caught.value.hint == "start the master, or check the master argument"


def test_one_of_several_masters_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master_answers(f"spark://127.0.0.1:1,127.0.0.1:{port}")


@pytest.mark.parametrize("master", [None, "local[2]", "yarn", "k8s://https://h:1"])
def test_other_masters_are_left_to_spark(master):
    check_master_answers(master)
