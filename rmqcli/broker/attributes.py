"""Attributes of topics and groups (5.x): their names, their values, and changes.

`+name=value` sets an attribute and `-name` removes it.

Source: `AttributeParser`, `AttributeUtil`, `TopicAttributes` and
`SubscriptionGroupAttributes` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from rmqcli.broker.request import system_error
from rmqcli.dataclass import dataclass
from rmqcli.wire.bodies.lite import LITE_BIND_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_TYPE: Final = "message.type"
QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUES: Final = "BatchCQ"
#: How many of 100 POP requests read a PRIORITY topic from the highest priority on.
PRIORITY_FACTOR: Final = "priority.factor"
PRIORITY_FACTOR_MAX: Final = 100

LITE_MODEL: Final = "lite.sub.model"
LITE_RESET_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
LITE_RESET_UNSUBSCRIBED: Final = "lite.sub.reset.offset.unsubscribe"
LITE_QUOTA: Final = "lite.sub.client.quota"
LITE_WILDCARD: Final = "lite.sub.wildcard"
#: Minutes without a message after which a lite topic is deleted; -1 for never.
LITE_EXPIRATION: Final = "lite.topic.expiration"

_INT64_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True)
class Attribute:
    """The values of an attribute: a set of words, a range of numbers, or any text.

    One that is not `is_changeable` can only be set when its topic is created.
    """

    values: frozenset[str] | range | None = None
    is_changeable: bool = True

    def check(self, value: str) -> None:
        """Raise Refusal(1) if the attribute cannot have this value."""
        if isinstance(self.values, frozenset) and value not in self.values:
            raise system_error(f"value is not in set: {value}")
        if isinstance(self.values, range):
            digits = value[1:] if value[:1] in ("+", "-") else value
            if not (digits.isascii() and digits.isdecimal()) or (
                len(digits) > _DIGITS_MAX
            ):
                raise system_error(f'For input string: "{value}"')
            if int(value) not in self.values:
                first, last = self.values[0], self.values[-1]
                raise system_error(f"value is not in range({first}, {last})")


Attributes: TypeAlias = "Mapping[str, Attribute]"

_BOOLEAN: Final = Attribute(frozenset({"true", "false"}))

TOPIC_ATTRIBUTES: Final[Attributes] = {
    QUEUE_TYPE: Attribute(frozenset({BATCH_QUEUES, "SimpleCQ"}), is_changeable=False),
    "cleanup.policy": Attribute(
        frozenset({"DELETE", "COMPACTION"}), is_changeable=False
    ),
    MESSAGE_TYPE: Attribute(
        frozenset(
            {
                "UNSPECIFIED",
                "NORMAL",
                "FIFO",
                "DELAY",
                "TRANSACTION",
                "PRIORITY",
                "LITE",
                "MIXED",
            }
        )
    ),
    "reserve.time": Attribute(range(-1, _INT64_MAX + 1)),
    LITE_EXPIRATION: Attribute(range(-1, 30 * 24 * 60 + 1)),
}
GROUP_ATTRIBUTES: Final[Attributes] = {
    PRIORITY_FACTOR: Attribute(range(PRIORITY_FACTOR_MAX + 1)),
    LITE_BIND_TOPIC: Attribute(),
    LITE_MODEL: Attribute(frozenset({"Shared", "Exclusive"})),
    LITE_RESET_EXCLUSIVE: _BOOLEAN,
    LITE_RESET_UNSUBSCRIBED: _BOOLEAN,
    LITE_QUOTA: Attribute(range(-1, _INT64_MAX + 1)),
    "lite.sub.client.max.event.cnt": Attribute(range(10, _INT64_MAX + 1)),
    LITE_WILDCARD: Attribute(),
}


def attributes_of(text: str) -> dict[str, str]:
    """Return the changes in a text such as `+message.type=FIFO,-reserve.time`.

    Raises Refusal(1) for a name that is given twice.
    """
    changes: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        key, _, value = item.partition("=")
        if key.strip() in changes:
            raise system_error(f"key in input twice: {key.strip()}")
        changes[key.strip()] = value.strip()
    return changes


def changed_attributes(
    known: Attributes,
    current: Mapping[str, str],
    changes: Mapping[str, str],
    *,
    is_new: bool,
) -> dict[str, str]:
    """Return the attributes after the changes. Raises Refusal(1)."""
    result = dict(current)
    seen: set[str] = set()
    for key, value in changes.items():
        name, is_removal = key[1:], key.startswith("-")
        if key[:1] not in ("+", "-"):
            raise system_error(f"wrong format key: {key}")
        if name in seen:
            raise system_error(f"alter duplication key. key: {name}")
        seen.add(name)
        if is_new and is_removal:
            raise system_error(
                f"only add attribute is supported while creating topic. key: {key}"
            )
        attribute = known.get(name)
        if attribute is None:
            raise system_error(f"unsupported key: {name}")
        if not (is_new or attribute.is_changeable):
            raise system_error(
                f"attempt to update an unchangeable attribute. key: {name}"
            )
        if not is_removal:
            attribute.check(value)
            result[name] = value
        elif name in result:
            del result[name]
        else:
            raise system_error(f"attempt to delete a nonexistent key: {name}")
    return result
