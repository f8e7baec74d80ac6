"""Key-value table, settings, write permission: 100-102, 205, 219, 318, 319, 327.

Imitated: the table that order topics are configured in, wiping and adding a broker's
write permission, and the settings that 5.x does not change.
Not imitated: settings with an effect. So only productEnvName, which has none, can be
changed; RocketMQ accepts unknown settings and ignores them.

Source: `DefaultRequestProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.namesrv.state import NamesrvState, handles
from rmqcli.broker.request import Refusal, Reply, no_permission, read_config
from rmqcli.wire.bodies.config import KVTable
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import namesrv_config as headers
from rmqcli.wire.version import V4_9_2

if TYPE_CHECKING:
    from rmqcli.broker.request import BrokerRequest

#: NamesrvConfig.configBlackList
_BLACK_LIST: Final = frozenset(("configBlackList", "configStorePath", "kvConfigPath"))
_CHANGEABLE: Final = frozenset(("productEnvName",))


@handles(RequestCode.PUT_KV_CONFIG)
def put_kv_config(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Set one value (100)."""
    header = request.header(headers.PutKVConfigRequestHeader)
    server.kv.put(header.namespace, header.key, header.value)
    return Reply()


@handles(RequestCode.GET_KV_CONFIG)
def get_kv_config(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with one value (101), or with 22 if there is none."""
    header = request.header(headers.GetKVConfigRequestHeader)
    value = server.kv.get(header.namespace, header.key)
    if value is None:
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND,
            f"No config item, Namespace: {header.namespace} Key: {header.key}",
        )
    return Reply(header=headers.GetKVConfigResponseHeader(value=value))


@handles(RequestCode.DELETE_KV_CONFIG)
def delete_kv_config(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Remove one value (102)."""
    header = request.header(headers.DeleteKVConfigRequestHeader)
    server.kv.delete(header.namespace, header.key)
    return Reply()


@handles(RequestCode.GET_KVLIST_BY_NAMESPACE)
def get_kv_list(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with a namespace's values (219), or with 22 if it never had any."""
    namespace = request.header(headers.GetKVListByNamespaceRequestHeader).namespace
    table = server.kv.table(namespace)
    if table is None:
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
        )
    return Reply(body=encode_body(KVTable(table=table)))


@handles(RequestCode.GET_NAMESRV_CONFIG)
def get_config(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer with the settings (319)."""
    lines = [f"{name}={text}\n" for name, text in server.settings.items()]
    return Reply(body="".join(lines).encode())


@handles(RequestCode.UPDATE_NAMESRV_CONFIG)
def update_config(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Change all the given settings, or none of them (318)."""
    given = read_config(request, _BLACK_LIST if server.profile.has_bodies_of_5 else ())
    for name, text in given.items():
        if name not in _CHANGEABLE and server.settings.get(name) != text:
            raise no_permission(
                f"setting {name[:80]} cannot be changed in an embedded name server; no"
                " setting was changed"
            )
    server.settings.update(given)
    return Reply()


@handles(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
def wipe_write_perm(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Take the write permission from a broker's topics (205)."""
    name = request.header(headers.WipeWritePermOfBrokerRequestHeader).broker_name
    count = server.routes.set_writable(name, is_writable=False)
    answer = headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
    return Reply(header=answer)


@handles(RequestCode.ADD_WRITE_PERM_OF_BROKER, since=V4_9_2)
def add_write_perm(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Give a broker's topics the write permission back (327)."""
    name = request.header(headers.AddWritePermOfBrokerRequestHeader).broker_name
    count = server.routes.set_writable(name, is_writable=True)
    answer = headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
    return Reply(header=answer)
