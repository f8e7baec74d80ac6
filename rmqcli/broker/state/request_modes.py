"""The request mode (PULL or POP) of each group in a topic.

SET_MESSAGE_REQUEST_MODE stores the modes; they are kept in messageRequestMode.json.

Source: `MessageRequestModeManager` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.wire.bodies.pop import MessageRequestModeSerializeWrapper

if TYPE_CHECKING:
    from rmqcli.wire.bodies.pop import SetMessageRequestModeRequestBody

#: The most modes that one broker keeps. RocketMQ has no such limit.
MODES_MAX: Final = 50_000


class RequestModes:
    """Modes by topic and group. `version` grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._modes: dict[tuple[str, str], SetMessageRequestModeRequestBody] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further mode can be set."""
        return len(self._modes) >= MODES_MAX

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """The stored mode; None if none was set."""
        return self._modes.get((topic, group))

    def set(
        self, topic: str, group: str, mode: SetMessageRequestModeRequestBody
    ) -> None:
        """Store a mode."""
        self._modes[topic, group] = mode
        self.version += 1

    def body(self) -> MessageRequestModeSerializeWrapper:
        """The content of messageRequestMode.json."""
        table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        for (topic, group), mode in self._modes.items():
            table.setdefault(topic, {})[group] = mode
        return MessageRequestModeSerializeWrapper(message_request_mode_map=table)

    def load(self, body: MessageRequestModeSerializeWrapper) -> None:
        """Replace all modes with the stored ones."""
        self._modes = {
            (topic, group): mode
            for topic, groups in body.message_request_mode_map.items()
            for group, mode in groups.items()
        }
        self.version += 1
