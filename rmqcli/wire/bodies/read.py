"""Takes typed values out of the JSON of an answer. Shared by the other bodies modules.

As lenient as fastjson where that is harmless (`"5"` is 5, null is absent, unknown keys
are ignored); what cannot be meant raises BodyError naming the field. A field that is
absent is the caller's default, never a made-up 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.wire import fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqcli.wire.fastjson import JsonObject, JsonValue

Default = TypeVar("Default", int, None)
T = TypeVar("T")

#: Java keeps queue ids in an int; no topic has more queues than this.
QUEUE_NUMS_MAX = 65535

_INT64_MAX = (1 << 63) - 1
_SHOWN_MAX = 40


def load_object(body: bytes | str, what: str) -> JsonObject:
    """The JSON object that `body` holds. `what` names it in the BodyError."""
    if not body:
        raise BodyError(f"{what} has no body")
    try:
        value = fastjson.loads(body)
    except BodyError as error:
        raise BodyError(f"{what}: {error.message}") from error
    if not isinstance(value, dict):
        raise BodyError(f"{what} is not a JSON object but {_shown(value)}")
    return value


def get_int(data: JsonObject, name: str, default: Default) -> int | Default:
    """A whole number of 64 bits, or `default` when it is absent or null."""
    value = data.get(name)
    if type(value) is int and -_INT64_MAX <= value <= _INT64_MAX:
        return value
    return default if value is None else to_int(value, name)


def need_int(data: JsonObject, name: str) -> int:
    """A whole number of 64 bits that must be there."""
    value = data.get(name)
    if type(value) is int and -_INT64_MAX <= value <= _INT64_MAX:
        return value
    return to_int(value, name)


def to_int(value: JsonValue, name: str) -> int:
    """`value` as a whole number of 64 bits; text that says one is taken too."""
    number: int | None = None
    if isinstance(value, bool):
        number = None
    elif isinstance(value, int):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str) and len(value) <= 20 and value.isascii():
        try:
            number = int(value)
        except ValueError:
            number = None
    if number is None or not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise BodyError(f"{name} is not a whole number of 64 bits: {_shown(value)}")
    return number


def get_queue_nums(data: JsonObject, name: str) -> int:
    """A number of queues: 0 to 65535; 0 when absent, as Java's own default."""
    number = get_int(data, name, 0)
    if not 0 <= number <= QUEUE_NUMS_MAX:
        raise BodyError(f"{name} {number} is not in 0..{QUEUE_NUMS_MAX}")
    return number


def get_float(data: JsonObject, name: str) -> float | None:
    """A number; None when it is absent, null or NaN."""
    value = data.get(name)
    if isinstance(value, str):
        try:
            return float(value[:_SHOWN_MAX])
        except ValueError:
            pass
    elif value is None or (isinstance(value, float) and not isinstance(value, bool)):
        return value
    elif isinstance(value, int) and abs(value) <= _INT64_MAX:
        return float(value)
    raise BodyError(f"{name} is not a number: {_shown(value)}")


def get_text(data: JsonObject, name: str) -> str | None:
    """Text; a number or a boolean becomes its text. None when absent or null."""
    value = data.get(name)
    return value if value is None or type(value) is str else to_text(value, name)


def need_text(data: JsonObject, name: str) -> str:
    """Text that must be there."""
    value = get_text(data, name)
    if value is None:
        raise BodyError(f"{name} is missing")
    return value


def to_text(value: JsonValue, name: str) -> str:
    """`value` as text, as fastjson writes it where a String is wanted."""
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)) or value is None:
        raise BodyError(f"{name} is not text: {_shown(value)}")
    return fastjson.dumps(value)


def get_bool(data: JsonObject, name: str, *, default: bool = False) -> bool:
    """A boolean; also `"true"` in any case, and numbers."""
    value = data.get(name)
    if isinstance(value, bool):
        return value
    if value is None:
        return default
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, int):
        return value == 1
    raise BodyError(f"{name} is not true or false: {_shown(value)}")


def get_object(data: JsonObject, name: str) -> JsonObject:
    """An object; empty when it is absent or null."""
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BodyError(f"{name} is not an object: {_shown(value)}")
    return value


def get_list(data: JsonObject, name: str) -> list[JsonValue]:
    """A list; empty when it is absent or null."""
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{name} is not a list: {_shown(value)}")
    return value


def get_objects(data: JsonObject, name: str) -> list[JsonObject]:
    """A list of objects; nulls in it are skipped."""
    items: list[JsonObject] = []
    for value in get_list(data, name):
        if isinstance(value, dict):
            items.append(value)
        elif value is not None:
            raise BodyError(f"{name} has {_shown(value)} where an object is due")
    return items


def get_texts(data: JsonObject, name: str) -> list[str]:
    """A list of text; nulls in it are skipped."""
    return [to_text(v, name) for v in get_list(data, name) if v is not None]


def get_table(data: JsonObject, name: str) -> Iterator[tuple[str, JsonObject]]:
    """The entries of an object whose values are objects; null ones are skipped."""
    for key, value in get_object(data, name).items():
        if isinstance(value, dict):
            yield key, value
        elif value is not None:
            raise BodyError(f"{name} has {_shown(value)} where an object is due")


def get_queue_table(
    data: JsonObject, name: str, read: Callable[[JsonObject], T]
) -> dict[MessageQueue, T]:
    """A table by queue, each value read by `read`.

    A value that only refers to another one, which fastjson writes for a repeated Java
    object, raises BodyError: what it stands for cannot be known.
    """
    table: dict[MessageQueue, T] = {}
    for key, value in get_table(data, name):
        if "$ref" in value:
            raise BodyError(f"{name} has a reference where an object is due")
        table[queue_of_key(key, name)] = read(value)
    return table


def get_queue_numbers(data: JsonObject, name: str) -> dict[MessageQueue, int]:
    """A table by queue whose values are whole numbers; null ones are skipped."""
    return {
        queue_of_key(key, name): to_int(value, name)
        for key, value in get_object(data, name).items()
        if value is not None
    }


def read_queue(data: JsonObject) -> MessageQueue:
    """A MessageQueue written as an object."""
    topic, broker_name = data.get("topic"), data.get("brokerName")
    queue_id = data.get("queueId", 0)
    if type(topic) is not str:
        topic = need_text(data, "topic")
    if type(broker_name) is not str:
        broker_name = need_text(data, "brokerName")
    if type(queue_id) is not int:
        queue_id = to_int(queue_id, "queueId")
    return MessageQueue(topic, broker_name, queue_id)


def queue_of_key(key: str, name: str) -> MessageQueue:
    """The queue that a key of the table `name` says: an object, or its text."""
    if isinstance(key, fastjson.ObjectKey):
        return read_queue(key.value)
    # 4.9.7 and 5.3.3 also read keys that hold the object as quoted text.
    if key.startswith("{"):
        return read_queue(load_object(key, f"a key of {name}"))
    raise BodyError(f"{name} has the key {_shown(key)}, which is not a queue")


def _shown(value: JsonValue) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > _INT64_MAX:
        return "a huge number"
    return repr(value[:_SHOWN_MAX] if isinstance(value, str) else value)
