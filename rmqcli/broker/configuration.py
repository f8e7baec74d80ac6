"""A broker's settings as text, and changing them while it runs.

Those that this broker has take effect at once; all others are kept and shown. Nothing
is written to a file: after a restart the settings are those it was started with.

Source: `Configuration` and `AdminBrokerProcessor.updateBrokerConfig`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.data_version import DataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.core import Broker
    from rmqcli.now import Now

#: Settings that can change while the broker runs: RocketMQ's name -> ours.
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
    "transactionTimeOut": "transaction_timeout_ms",
    "transactionCheckMax": "transaction_check_max",
    "channelExpiredTimeout": "channel_expired_timeout_ms",
}
_FIXED: Final = frozenset(
    {
        "brokerClusterName",
        "brokerName",
        "brokerId",
        "brokerIP1",
        "listenPort",
        "brokerRole",
        "flushDiskType",
        "messageDelayLevel",
        "transactionCheckInterval",
        "useServerSideResetOffset",
    }
)
_OTHERS_MAX: Final = 1_000
_NUMBER_MAX: Final = 2**31 - 1


class Configuration:
    """The text of GET_BROKER_CONFIG, and what UPDATE_BROKER_CONFIG changes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._others: dict[str, str] = {}
        self.data_version = DataVersion(timestamp=broker.started.epoch_ms)

    def properties(self) -> dict[str, str]:
        """All settings by RocketMQ's name, sorted."""
        settings = self._broker.settings
        host, _, port = settings.address.rpartition(":")
        check_ms = settings.transaction_check_interval_ms
        if check_ms is None:
            check_ms = self._broker.manners.transaction_check_interval_ms
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
        if self._broker.manners.has_bodies_of_5:
            known["useServerSideResetOffset"] = self.resets_at_broker
        shown = {name: _shown(value) for name, value in known.items()}
        return dict(sorted((self._others | shown).items()))

    @property
    def resets_at_broker(self) -> bool:
        """Whether 222 sets offsets here (true from 5.2.0 on) or asks the members."""
        asked = self._broker.settings.use_server_side_reset_offset
        return self._broker.manners.resets_at_broker if asked is None else asked

    def update(self, properties: Mapping[str, str], now: Now) -> None:
        """Change settings. Values that cannot be, and fixed ones, stay as they are."""
        changes: dict[str, object] = {}
        for name, text in properties.items():
            if name in _CHANGEABLE:
                field = _CHANGEABLE[name]
                value = _read(text, getattr(self._broker.settings, field))
                if value is not None:
                    changes[field] = value
            elif name == "useServerSideResetOffset":
                changes["use_server_side_reset_offset"] = text.strip() == "true"
            elif name not in _FIXED and (
                name in self._others or len(self._others) < _OTHERS_MAX
            ):
                self._others[name] = text
        self._broker.settings = dataclasses.replace(
            self._broker.settings,
            **changes,  # type: ignore[arg-type]  # read by the type of the field
        )
        self.data_version = self.data_version.next(now.epoch_ms)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(text: str, current: object) -> object:
    """`text` as the type of the current value; None for what is none."""
    text = text.strip()
    if isinstance(current, bool):
        return {"true": True, "false": False}.get(text.lower())
    if text.isascii() and text.isdecimal() and len(text) <= 10:
        return min(int(text), _NUMBER_MAX)
    return None
