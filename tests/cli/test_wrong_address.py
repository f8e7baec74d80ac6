"""An address that is not a name server's is called that, by every command."""

from __future__ import annotations

import pytest

from rmqcli.cli.main import run


@pytest.mark.parametrize(
    "command",
    [
        "brokers",
        "groups",
        "lag",
        "lag G",
        "send T x",
        "tail T --no-follow",
        "topic show T",
        "topics",
    ],
)
def test_a_broker_in_place_of_a_name_server_is_said_to_be_none(
    rmq_cluster, capfd, command
):
    address = rmq_cluster.broker().address
    assert run([*command.split(), "-n", address]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert f"error: {address} is not a name server: it does not know the request" in err
    assert err.splitlines()[-1] == (
        "hint: give the address of a name server, not of a broker; its port is 9876 by"
        " default"
    )
