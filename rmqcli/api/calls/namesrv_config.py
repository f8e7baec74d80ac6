"""Requests to a name server: its settings, its key-value store, write permissions.

Source: DefaultRequestProcessor of the name server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import header_of, make_call, nothing
from rmqcli.wire.bodies.config import KVTable, parse_properties_text
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import namesrv_config as headers
from rmqcli.wire.version import V4_9_2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.call import Call
    from rmqcli.wire.command import RemotingCommand


def get_namesrv_config() -> Call[dict[str, str]]:
    """The name server's settings, all as text."""
    return make_call(
        RequestCode.GET_NAMESRV_CONFIG,
        lambda answer: parse_properties_text(answer.body),
        what="settings of the name server",
    )


def put_kv_config(namespace: str, key: str, value: str) -> Call[None]:
    """Set one value of the key-value store. To be sent to every name server."""
    return make_call(
        RequestCode.PUT_KV_CONFIG,
        nothing,
        what=f"setting of {key} in {namespace}",
        header=headers.PutKVConfigRequestHeader(
            namespace=namespace, key=key, value=value
        ),
    )


def delete_kv_config(namespace: str, key: str) -> Call[None]:
    """Remove one value of the key-value store. To be sent to every name server."""
    return make_call(
        RequestCode.DELETE_KV_CONFIG,
        nothing,
        what=f"removal of {key} in {namespace}",
        header=headers.DeleteKVConfigRequestHeader(namespace=namespace, key=key),
    )


def get_kv_config(namespace: str, key: str) -> Call[str | None]:
    """One value of the key-value store; None if there is none."""

    def parse(answer: RemotingCommand) -> str | None:
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return header_of(headers.GetKVConfigResponseHeader, answer).value

    return make_call(
        RequestCode.GET_KV_CONFIG,
        parse,
        what=f"value of {key} in {namespace}",
        header=headers.GetKVConfigRequestHeader(namespace=namespace, key=key),
        also_ok=(ResponseCode.QUERY_NOT_FOUND,),
    )


def get_kvlist_by_namespace(namespace: str) -> Call[dict[str, str]]:
    """The values of a namespace by key; empty if there are none."""
    return make_call(
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        lambda answer: (
            {}
            if answer.code == ResponseCode.QUERY_NOT_FOUND
            else decode_body(KVTable, answer.body).table
        ),
        what=f"values of {namespace}",
        header=headers.GetKVListByNamespaceRequestHeader(namespace=namespace),
        also_ok=(ResponseCode.QUERY_NOT_FOUND,),
    )


def update_namesrv_config(settings: Mapping[str, str]) -> Call[None]:
    """Change settings of the name server, as `config.update_broker_config` does."""
    from rmqcli.wire.bodies.properties import encode_properties  # for few commands

    return make_call(
        RequestCode.UPDATE_NAMESRV_CONFIG,
        nothing,
        what="change of name server settings",
        body=encode_properties(settings),
    )


def wipe_write_perm_of_broker(broker_name: str) -> Call[int]:
    """Take the write permission from a broker's topics; the number of its topics.

    It lasts until the broker registers changed topics. To be sent to every name server.
    """
    return make_call(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        lambda answer: (
            header_of(
                headers.WipeWritePermOfBrokerResponseHeader, answer
            ).wipe_topic_count
        ),
        what=f"taking the write permission of {broker_name}",
        header=headers.WipeWritePermOfBrokerRequestHeader(broker_name=broker_name),
    )


def add_write_perm_of_broker(broker_name: str) -> Call[int]:
    """Give every topic of a broker both permissions; the number of its topics.

    That includes topics that could only be read before. To be sent to every name
    server.
    """
    return make_call(
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        lambda answer: (
            header_of(
                headers.AddWritePermOfBrokerResponseHeader, answer
            ).add_topic_count
        ),
        what=f"giving {broker_name} the write permission",
        header=headers.AddWritePermOfBrokerRequestHeader(broker_name=broker_name),
        needs_version=V4_9_2,
    )
