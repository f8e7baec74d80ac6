"""Requests that change the key-value store of a name server.

Source: DefaultRequestProcessor of the name server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call, nothing
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.namesrv_config import (
    DeleteKVConfigRequestHeader,
    PutKVConfigRequestHeader,
)

if TYPE_CHECKING:
    from rmqcli.api.call import Call


def put_kv_config(namespace: str, key: str, value: str) -> Call[None]:
    """Set one value of the key-value store. To be sent to every name server."""
    return make_call(
        RequestCode.PUT_KV_CONFIG,
        nothing,
        what=f"setting of {key} in {namespace}",
        header=PutKVConfigRequestHeader(namespace=namespace, key=key, value=value),
    )


def delete_kv_config(namespace: str, key: str) -> Call[None]:
    """Remove one value of the key-value store. To be sent to every name server."""
    return make_call(
        RequestCode.DELETE_KV_CONFIG,
        nothing,
        what=f"removal of {key} in {namespace}",
        header=DeleteKVConfigRequestHeader(namespace=namespace, key=key),
    )
