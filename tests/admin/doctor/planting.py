"""Plants trouble in an embedded cluster, and diagnoses it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rmqcli.admin.doctor.diagnose import diagnose
from rmqcli.admin.doctor.model import CheckStatus
from rmqcli.api.calls.client import send_heartbeat
from rmqcli.api.calls.config import get_broker_config, get_broker_runtime_info
from rmqcli.api.client import Client
from rmqcli.cli.arguments.arrange import arrange
from rmqcli.cli.arguments.parse import parse
from rmqcli.cli.commands import COMMANDS
from rmqcli.config import ClientConfig, parse_namesrv
from rmqcli.model import MASTER_ID
from rmqcli.testing import faults
from rmqcli.wire.bodies.config import KVTable
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.subscription import SubscriptionData

if TYPE_CHECKING:
    from rmqcli.admin.doctor.model import Finding


def open_client(namesrv: str, **settings: Any) -> Client:
    return Client(ClientConfig(namesrv=parse_namesrv(namesrv), **settings))


def findings(namesrv: str, name: str, **settings: Any) -> list[Finding]:
    """Return what one check finds.

    Whatever is wrong has a meaning, and a command to try; what is unknown has neither.
    """
    with open_client(namesrv, **settings) as client:
        (result,) = diagnose(client, only=[name]).results
    for each in result.findings:
        is_unknown = each.status is CheckStatus.UNKNOWN
        assert (bool(each.meaning), bool(each.command)) == (not is_unknown,) * 2, each
        if each.command.startswith("rmq "):
            assert is_command(each.command), each
    return list(result.findings)


def is_command(line: str) -> bool:
    """Whether a command line is one of rmq, with options and values that it takes."""
    paths = [command.path for command in COMMANDS]
    return parse(arrange(shlex.split(line)[1:], paths), {}) is not None


def only_finding(cluster: Any, name: str, **settings: Any) -> tuple[str, str, str]:
    """Return status, subject and evidence of the one thing that a check finds."""
    (found,) = findings(cluster.namesrv, name, **settings)
    return str(found.status), found.subject, found.evidence


def plant_runtime(cluster: Any, broker: str = "broker-a", **changes: str) -> None:
    """Have a broker report other runtime information than its own."""
    with open_client(cluster.namesrv) as client:
        address = cluster.broker(broker).address
        table = client.invoke(address, get_broker_runtime_info())
    cluster.faults.add(
        faults.answer(0, body=encode_body(KVTable(table={**table, **changes}))),
        code=RequestCode.GET_BROKER_RUNTIME_INFO,
        broker=broker,
    )


def plant_settings(cluster: Any, broker: str = "broker-a", **changes: str) -> None:
    """Have a broker show other settings than its own."""
    with open_client(cluster.namesrv) as client:
        settings = client.invoke(cluster.broker(broker).address, get_broker_config())
    lines = [f"{name}={value}\n" for name, value in {**settings, **changes}.items()]
    cluster.faults.add(
        faults.answer(0, body="".join(lines).encode()),
        code=RequestCode.GET_BROKER_CONFIG,
        broker=broker,
    )


def heartbeat(
    client: Client, group: str, client_id: str, *, topic: str = "orders"
) -> None:
    """Make the client of `client` a member of a group, which consumes nothing."""
    member = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(SubscriptionData(topic=topic, sub_string="*"),),
    )
    body = HeartbeatData(client_id=client_id, consumers=(member,))
    address = client.cluster_info().brokers["broker-a"].addresses[MASTER_ID]
    client.invoke(address, send_heartbeat(body))
