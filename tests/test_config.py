"""ClientConfig's address map, for brokers that advertise an unreachable address."""

from __future__ import annotations

import pickle

import pytest

from rmqcli.admin.admin import Admin
from rmqcli.cli.main import run
from rmqcli.cluster import connect
from rmqcli.config import ClientConfig
from rmqcli.errors import ConfigError
from rmqcli.producer.message import ProducerMessage
from rmqcli.testing import EmbeddedCluster

#: An address for documentation, which no network reaches (RFC 5737).
ADVERTISED = "192.0.2.1:10911"


@pytest.fixture
def cluster(free_port):
    """A cluster whose broker advertises an address that cannot be reached."""
    with EmbeddedCluster(
        broker_ports=[free_port], settings={"address": ADVERTISED}
    ) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b"])
        yield cluster


@pytest.fixture
def free_port():
    """A port that was free a moment ago."""
    with EmbeddedCluster() as probe:
        return int(probe.brokers[0].address.rpartition(":")[2])


def test_clients_use_the_reachable_address_and_show_the_advertised_one(
    cluster, free_port
):
    mapped = {ADVERTISED: f"127.0.0.1:{free_port}"}
    with connect(cluster.namesrv, address_map=mapped) as found:
        with found.producer() as producer:
            producer.send(ProducerMessage("orders", b"c"))
        with found.admin() as admin:
            assert [broker.address for broker in admin.brokers()] == [ADVERTISED]
            (queue,) = admin.topic("orders").queues
            assert queue.offset is not None
            assert queue.offset.max_offset == 3


def test_a_host_without_a_port_stands_for_all_its_ports(free_port):
    advertised = f"192.0.2.1:{free_port}"
    with EmbeddedCluster(
        broker_ports=[free_port], settings={"address": advertised}
    ) as cluster:
        config = ClientConfig(
            namesrv=cluster.namesrv, address_map={"192.0.2.1": "127.0.0.1"}
        )
        with Admin(client=config) as admin:
            assert [broker.address for broker in admin.brokers()] == [advertised]


def test_the_command_line_takes_an_address_map_before_and_after_the_command(
    cluster, free_port, capfd
):
    option = ["--address-map", f"{ADVERTISED}=127.0.0.1:{free_port}"]
    tail = ["tail", "orders", "--no-follow", "-o", "raw"]
    for arguments in ([*option, *tail], [*tail, *option]):
        assert run(["-n", cluster.namesrv, *arguments]) == 0
        assert capfd.readouterr().out == "a\nb\n"


def test_an_error_names_the_advertised_and_the_reachable_address(cluster, capfd):
    option = ["--address-map", f"{ADVERTISED}=127.0.0.1:1"]
    assert run(["-n", cluster.namesrv, *option, "tail", "orders", "--no-follow"]) == 5
    error = capfd.readouterr().err
    assert f"broker-a ({ADVERTISED} (mapped to 127.0.0.1:1))" in error
    assert f"hint: broker-a advertises {ADVERTISED}; check --address-map" in error


@pytest.mark.parametrize(
    ("mapped", "message"),
    [
        ({"a:1": "b"}, "address_map has 'a:1=b': one side has a port and the other"),
        ({"a:1": ""}, "address_map has 'a:1=': no address"),
        ({"a:x": "b:1"}, "address_map has 'a:x=b:1': the port is not a number"),
        ({"a:1": "c:1", "b:1": "c:1"}, "address_map leads a:1 and b:1 to one address"),
        ([("a:1", "b:1"), ("a:1", "c:1")], "address_map has two addresses for a:1"),
    ],
)
def test_a_wrong_address_map_is_refused(mapped, message):
    with pytest.raises(ConfigError) as caught:
        ClientConfig(address_map=mapped)
    assert caught.value.message.startswith(message)


def test_an_address_map_that_maps_no_text_is_a_type_error():
    with pytest.raises(TypeError, match="address_map must map addresses"):
        ClientConfig(address_map=[("a:1", 2)])  # type: ignore[list-item]  # tested


def test_a_configuration_with_an_address_map_is_pickled_and_hashed():
    config = ClientConfig(address_map={"a:1": "b:1", "[::1]": "localhost"})
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(ClientConfig(address_map=config.address_map))
    assert config.address_map == (("a:1", "b:1"), ("[::1]", "localhost"))
