"""A broker's settings as text, and changing them while it runs.

Some settings can be changed, with immediate effect. A request that changes any other
setting is refused as a whole; RocketMQ accepts unknown settings and ignores them. A
request may repeat the current value of any setting, so that tools can send back the
settings that they have read. Nothing is written to a file: after a restart, the broker
has its initial settings again.

`autoCreateTopicEnable` and `defaultTopicQueueNums` apply to TBW102 at once; RocketMQ
must be restarted for that.

Source: `Configuration` and `AdminBrokerProcessor.updateBrokerConfig`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.request import Refusal, no_permission
from rmqcli.wire.bodies.data_version import DataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.state.topics import TopicTable
    from rmqcli.clock import Now

#: Settings that can change while the broker runs: RocketMQ's name -> field.
_CHANGEABLE: Final = {
    "autoCreateTopicEnable": "auto_create_topic_enable",
    "autoCreateSubscriptionGroup": "auto_create_subscription_group",
    "defaultTopicQueueNums": "default_topic_queue_nums",
    "enablePropertyFilter": "enable_property_filter",
    "longPollingEnable": "long_polling_enable",
    "shortPollingTimeMills": "short_polling_time_mills",
    "slaveReadEnable": "slave_read_enable",
    "offsetCheckInSlave": "offset_check_in_slave",
    "maxMessageSize": "max_message_size",
    "maxMsgsNumBatch": "max_msgs_num_batch",
    "maxTransferCountOnMessageInMemory": "max_transfer_count_on_message_in_memory",
    "maxTransferBytesOnMessageInMemory": "max_transfer_bytes_on_message_in_memory",
    "maxTransferCountOnMessageInDisk": "max_transfer_count_on_message_in_disk",
    "maxTransferBytesOnMessageInDisk": "max_transfer_bytes_on_message_in_disk",
    "maxFilterMessageSize": "max_filter_message_size",
    "storeReplyMessageEnable": "store_reply_message_enable",
    "recallMessageEnable": "recall_message_enable",
    "appendTopicForTimerDeleteKey": "append_topic_for_timer_delete_key",
    "enableMixedMessageType": "enable_mixed_message_type",
    "transactionTimeOut": "transaction_timeout_ms",
    "transactionCheckMax": "transaction_check_max",
    "channelExpiredTimeout": "channel_expired_timeout_ms",
    "enableRetryTopicV2": "enable_retry_topic_v2",
    "popFromRetryProbability": "pop_from_retry_probability",
    "popFromRetryProbabilityForPriority": "pop_from_retry_probability_for_priority",
    "priorityOrderAsc": "priority_order_asc",
    "useSeparateRetryQueue": "use_separate_retry_queue",
}
_RESETS_AT_BROKER: Final = "useServerSideResetOffset"
_OF_DEFAULT_TOPIC: Final = ("autoCreateTopicEnable", "defaultTopicQueueNums")
_NUMBER_MAX: Final = 2**31 - 1
_QUOTED_MAX: Final = 80


class Configuration:
    """The settings as GET_BROKER_CONFIG shows and UPDATE_BROKER_CONFIG changes them."""

    def __init__(self, context: BrokerContext, topics: TopicTable) -> None:
        self._context = context
        self._topics = topics
        self.data_version = DataVersion(timestamp=context.started.epoch_ms)

    def properties(self) -> dict[str, str]:
        """All settings by RocketMQ's name, sorted."""
        settings = self._context.settings
        host, _, port = settings.address.rpartition(":")
        check_ms = settings.transaction_check_interval_ms
        if check_ms is None:
            check_ms = self._context.profile.transaction_check_interval_ms
        known = {
            name: getattr(settings, field) for name, field in _CHANGEABLE.items()
        } | {
            "brokerClusterName": settings.cluster,
            "brokerName": settings.broker_name,
            "brokerId": settings.broker_id,
            "brokerIP1": host,
            "listenPort": port,
            "brokerRole": "SLAVE" if settings.broker_id else "ASYNC_MASTER",
            "brokerPermission": 6,
            "flushDiskType": (
                "SYNC_FLUSH" if settings.flush_disk_sync else "ASYNC_FLUSH"
            ),
            "messageDelayLevel": settings.message_delay_level,
            "transactionCheckInterval": check_ms,
        }
        if self._context.profile.has_bodies_of_5:
            known[_RESETS_AT_BROKER] = self.resets_at_broker
        return {name: _shown(value) for name, value in sorted(known.items())}

    @property
    def resets_at_broker(self) -> bool:
        """Whether the broker answers 222 by setting the offsets itself.

        That is the default from 5.2.0 on. Otherwise the broker sends the reset to the
        members.
        """
        asked = self._context.settings.use_server_side_reset_offset
        return self._context.profile.resets_at_broker if asked is None else asked

    def update(self, properties: Mapping[str, str], now: Now) -> None:
        """Change all the given settings, or none of them.

        Raises Refusal: 16 for a setting that cannot be changed, 29 (1 in 4.x) for an
        illegal value.
        """
        shown = self.properties()
        changes = {
            self._field(name): self._value(name, text)
            for name, text in properties.items()
            if shown.get(name) != text.strip()
        }
        self._context.settings = dataclasses.replace(
            self._context.settings,
            **changes,  # type: ignore[arg-type]  # read by the type of the field
        )
        if any(_CHANGEABLE[name] in changes for name in _OF_DEFAULT_TOPIC):
            self._topics.renew_default_topic()
        self.data_version = self.data_version.next(now.epoch_ms)

    def _field(self, name: str) -> str:
        if name in _CHANGEABLE:
            return _CHANGEABLE[name]
        if name == _RESETS_AT_BROKER and self._context.profile.has_bodies_of_5:
            return "use_server_side_reset_offset"
        raise no_permission(
            f"setting {_cut(name)} cannot be changed in an embedded broker; no setting"
            " was changed"
        )

    def _value(self, name: str, text: str) -> object:
        if name == _RESETS_AT_BROKER:
            current: object = self.resets_at_broker
        else:
            current = getattr(self._context.settings, _CHANGEABLE[name])
        value = _read(text, current)
        if value is None or (name == "defaultTopicQueueNums" and value == 0):
            raise Refusal(
                self._context.profile.invalid_parameter_code,
                f"invalid value {_cut(text)!r} for setting {name}; no setting was"
                " changed",
            )
        return value


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cut(text: str) -> str:
    return text[:_QUOTED_MAX]


def _read(text: str, current: object) -> object:
    """Convert `text` to the type of the current value; None if it is illegal."""
    text = text.strip()
    if isinstance(current, bool):
        return {"true": True, "false": False}.get(text.lower())
    if text.isascii() and text.isdecimal() and len(text) <= 10:
        number = int(text)
        return number if number <= _NUMBER_MAX else None
    return None
