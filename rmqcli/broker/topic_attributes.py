"""A topic's attributes (5.x): `+name=value` sets one, `-name` removes one.

Source: `AttributeParser`, `AttributeUtil` and `TopicAttributes` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.request import Refusal
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Name -> the values it can have; None: a number.
_VALUES: Final[Mapping[str, frozenset[str] | None]] = {
    "queue.type": frozenset({"BatchCQ", "SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE", "COMPACTION"}),
    "message.type": frozenset(
        {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"}
    ),
    "reserve.time": None,
    "lite.topic.expiration": None,
}
#: Can only be said when a topic is made.
_IMMUTABLE: Final = frozenset({"queue.type", "cleanup.policy"})


def changed_attributes(
    current: Mapping[str, str], text: str, *, is_new: bool
) -> dict[str, str]:
    """What `text` makes of the attributes. Raises Refusal(1) for what cannot be."""
    result = dict(current)
    seen: set[str] = set()
    for item in filter(None, map(str.strip, text.split(","))):
        key, _, value = item.partition("=")
        name = key.strip().removeprefix("+").removeprefix("-")
        if name in seen:
            raise _refused(f"key in input twice: {name}")
        seen.add(name)
        if is_new and key.startswith("-"):
            raise _refused(
                f"only add attribute is supported while creating topic. key: {key}"
            )
        _check(name, value, is_new=is_new, is_removal=key.startswith("-"))
        if key.startswith("-"):
            if name not in result:
                raise _refused(f"attempt to delete a nonexistent key: {name}")
            del result[name]
        else:
            result[name] = value.strip()
    return result


def _check(name: str, value: str, *, is_new: bool, is_removal: bool) -> None:
    if name not in _VALUES:
        raise _refused(f"unsupported key: {name}")
    if name in _IMMUTABLE and not is_new:
        raise _refused(f"attempt to update an unchangeable attribute. key: {name}")
    if is_removal:
        return
    allowed = _VALUES[name]
    value = value.strip()
    is_good = value.lstrip("-").isdecimal() if allowed is None else value in allowed
    if not is_good:
        raise _refused(f"value is not in set: {value}")


def _refused(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
