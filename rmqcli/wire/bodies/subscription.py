"""SubscriptionData inside bodies: heartbeats, connections, running infos.

Source: SubscriptionData in apache/rocketmq, as fastjson writes it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rmqcli.wire.bodies.read import (
    get_bool,
    get_int,
    get_list,
    get_text,
    get_texts,
    need_text,
    to_int,
)
from rmqcli.wire.subscription import SUB_ALL, SubscriptionData

if TYPE_CHECKING:
    from rmqcli.wire.fastjson import JsonObject


def read_subscription(data: JsonObject) -> SubscriptionData:
    """A subscription written as an object. Without an expression it means all."""
    expression = get_text(data, "subString")
    return SubscriptionData(
        topic=need_text(data, "topic"),
        sub_string=SUB_ALL if expression is None else expression,
        tags_set=frozenset(get_texts(data, "tagsSet")),
        code_set=frozenset(
            to_int(code, "codeSet") for code in get_list(data, "codeSet")
        ),
        sub_version=get_int(data, "subVersion", 0),
        expression_type=get_text(data, "expressionType"),
        class_filter_mode=get_bool(data, "classFilterMode"),
    )


def subscription_json(subscription: SubscriptionData) -> dict[str, object]:
    """The object to write for a subscription; sets are sorted."""
    data: dict[str, object] = {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": sorted(subscription.code_set),
        "subString": subscription.sub_string,
        "subVersion": subscription.sub_version,
        "tagsSet": sorted(subscription.tags_set),
        "topic": subscription.topic,
    }
    if subscription.expression_type is not None:
        data["expressionType"] = subscription.expression_type
    return data


def encode_check_client(
    *, client_id: str, group: str, subscription: SubscriptionData
) -> bytes:
    """The body of CHECK_CLIENT_CONFIG. Source: CheckClientRequestBody."""
    data = {
        "clientId": client_id,
        "group": group,
        "subscriptionData": subscription_json(subscription),
    }
    return json.dumps(data, separators=(",", ":")).encode()
