"""JSON bodies: one mapper between declared classes and the objects in the JSON.

A body class derives from `Body` and is made by `@declared` (see `fields.py`, which also
has the rules for names). The mapper is beside `header.py`, its counterpart for headers,
and not in `bodies/`, because config files and offset files are read with it, too; the
folder `bodies` holds declarations only. Fields may have these types:

    str int float bool object         `object` is any JSON value, unchanged
    MessageQueue, a declared class    an object of that shape
    list[T] tuple[T, ...] frozenset[T]
    dict[K, T]                        K: str, int or MessageQueue (an object as key)

each optionally with `| None`. Reading is as lenient as fastjson where that is harmless:
"5" is read as 5, null counts as absent, nulls in lists and dicts are skipped, and
unknown keys are ignored. Anything else raises BodyError, which names the field. An
absent field takes its declared default, and never an invented 0. Writing leaves out
fields that are None and sorts keys by name, both as fastjson does.

Source: RemotingSerializable in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.wire import fastjson
from rmqcli.wire.fields import Fields, is_required, wire_field, wire_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.wire.fastjson import JsonObject, JsonValue
    from rmqcli.wire.fields import Reader, Rules


T = TypeVar("T")

_INT64_MAX = (1 << 63) - 1
_SHOWN_MAX = 40
#: Java writes at most 24 characters.
_FLOAT_LENGTH_MAX = 400
_NO_DEFAULT = object()
#: Type -> the expression that is true for values that need conversion; few do.
_CHECKS: dict[type, str] = {
    int: f"type(VALUE) is not int or not -{_INT64_MAX} <= VALUE <= {_INT64_MAX}",
    str: "type(VALUE) is not str",
    bool: "type(VALUE) is not bool",
    float: "type(VALUE) is not float",
}


class Body(Fields):
    """Base of the classes of JSON bodies."""

    __slots__ = ()


def enum_field(*members: str, default: str | None = None) -> str | None:
    """Declare the field of a Java enum, which is read from its name or ordinal.

    An unknown one is None.
    """

    def read(value: JsonValue, name: str) -> str | None:
        if type(value) is int:
            return members[value] if 0 <= value < len(members) else None
        text = to_text(value, name)
        return text if text in members else None

    return wire_field(default=default, read=read)


def decode_body(cls: type[T], body: bytes | str) -> T:
    """Read a body of class `cls`. Raises BodyError, which names the class."""
    if not body:
        raise BodyError(f"{cls.__name__}: the body is empty")
    try:
        return from_json(cls, to_object(fastjson.loads(body), "the body"))
    except BodyError as error:
        raise BodyError(f"{cls.__name__}: {error.message}") from error


def encode_body(value: object, *, bare_numbers: bool = False) -> bytes:
    """Write a body as JSON that every version of RocketMQ reads.

    With `bare_numbers`, keys that are numbers are not quoted, as in fastjson.
    """
    return fastjson.dumps(to_json(value), bare_numbers=bare_numbers).encode()


def from_json(cls: type[T], data: JsonObject) -> T:
    """Read a value of class `cls` from its JSON object. Raises BodyError."""
    read: Callable[[JsonObject], T] = _plan(cls).read
    return read(data)


def to_json(value: object) -> object:
    """Return the JSON value to write for a declared object or a container of them."""
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (frozenset, set)):
        return sorted(value)
    if isinstance(value, (str, int, float, MessageQueue)) or value is None:
        return value
    return json_object(value)


def json_object(value: object, *, with_defaults: bool = False) -> dict[str, object]:
    """Return the JSON object to write for a declared object.

    `with_defaults` writes fields at their default even where the declaration leaves
    them out.
    """
    plan = _plan(type(value))
    data: dict[str, object] = {}
    if plan.rest is not None:
        data.update(getattr(value, plan.rest))
    for attribute, name, write, unsent in plan.writings:
        item = getattr(value, attribute)
        if item is None or not (with_defaults or item != unsent or name in data):
            continue
        data[name] = to_json(item if write is None else write(item))
    return data


def to_int(value: JsonValue, name: str) -> int:
    """Return `value` as a 64-bit integer; the number may also be text."""
    number: int | None = None
    if type(value) is int:
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str) and len(value) <= 20 and _is_plain(value):
        with suppress(ValueError):
            number = int(value)
    if number is None or not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise BodyError(f"{name} is not a 64-bit integer: {_shown(value)}")
    return number


def to_float(value: JsonValue, name: str) -> float:
    """Return `value` as a float; the number may also be text."""
    if isinstance(value, str):
        if len(value) <= _FLOAT_LENGTH_MAX and _is_plain(value):
            with suppress(ValueError):
                return float(value)
    elif isinstance(value, float):
        return value
    elif isinstance(value, int) and abs(value) <= _INT64_MAX:
        return float(value)
    raise BodyError(f"{name} is not a number: {_shown(value)}")


def _is_plain(text: str) -> bool:
    """Whether a number in it is one for Java, too: int() and float() take `1_0`."""
    return text.isascii() and "_" not in text


def to_text(value: JsonValue, name: str) -> str:
    """Return `value` as text; numbers and booleans become text, as in fastjson."""
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)) or value is None:
        raise BodyError(f"{name} is not text: {_shown(value)}")
    return fastjson.dumps(value)


def to_bool(value: JsonValue, name: str) -> bool:
    """Return `value` as a boolean; the text "true" in any case and 1 are true, too."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, int):
        return value == 1
    raise BodyError(f"{name} is not true or false: {_shown(value)}")


def to_object(value: JsonValue, name: str) -> JsonObject:
    """Return `value` as a JSON object.

    Raises BodyError also for a reference to another object, which fastjson writes for
    a repeated Java object, because the other object cannot be found.
    """
    if not isinstance(value, dict):
        raise BodyError(f"{name} is not an object: {_shown(value)}")
    if "$ref" in value:
        raise BodyError(f"{name} is a reference where an object is expected")
    return value


def to_queue(value: JsonValue, name: str) -> MessageQueue:
    """Return `value` as a MessageQueue."""
    return _queue(to_object(value, name))


def _queue(data: JsonObject) -> MessageQueue:
    topic, broker_name = data.get("topic"), data.get("brokerName")
    queue_id = data.get("queueId", 0)
    if type(topic) is not str:
        topic = to_text(topic, "topic")
    if type(broker_name) is not str:
        broker_name = to_text(broker_name, "brokerName")
    if type(queue_id) is not int:
        queue_id = to_int(queue_id, "queueId")
    return MessageQueue(topic, broker_name, queue_id)


def _queue_of_key(key: str, name: str) -> MessageQueue:
    if isinstance(key, fastjson.ObjectKey):
        return _queue(key.value)
    # 4.9.7 and 5.3.3 also read keys that hold the object as quoted text.
    if key.startswith("{"):
        return to_queue(fastjson.loads(key), f"a key of {name}")
    raise BodyError(f"{name} has the key {_shown(key)}, which is not a queue")


def _int_of_key(key: str, name: str) -> int:
    is_plain = len(key) < 19 and key.isdecimal() and key.isascii()
    return int(key) if is_plain else to_int(key, name)


class _Writing(NamedTuple):
    """How one field is written."""

    attribute: str
    name: str
    write: Callable[[Any], object] | None
    #: a field with this value is not written
    unsent: object


class _Plan(NamedTuple):
    """How a class is read and written."""

    read: Callable[[JsonObject], Any]
    writings: tuple[_Writing, ...]
    #: the attribute that holds the whole object that was read
    rest: str | None


def _make_plan(cls: type) -> _Plan:
    # Sorted by wire name: the order in which fastjson writes them.
    fields = sorted(dataclasses.fields(cls), key=wire_name)
    rest = next((f.name for f in fields if "holds_the_rest" in _rules(f)), None)
    named = [item for item in fields if item.name != rest]
    writings = tuple(
        _Writing(
            item.name,
            wire_name(item),
            _rules(item).get("write"),
            _NO_DEFAULT
            if rest is None and _rules(item).get("is_sent_at_default", True)
            else _default_of(item),
        )
        for item in named
    )
    return _Plan(_compile(cls, named, rest), writings, rest)


_plan: Callable[[type], _Plan] = functools.cache(_make_plan)


def _rules(item: dataclasses.Field[Any]) -> Rules:
    rules: Rules = item.metadata.get("rules", {})
    return rules


def _compile(
    cls: type, fields: list[dataclasses.Field[Any]], rest: str | None
) -> Callable[[JsonObject], Any]:
    """Return the function that reads an object of class `cls`.

    It is compiled, as dataclasses compiles `__init__`: a loop over the fields takes
    twice as long, and `rmq lag` of a large cluster reads a hundred thousand objects.
    """
    hints = typing.get_type_hints(cls)
    names: dict[str, Any] = {"cls": cls, "new": object.__new__}
    lines = ["def read(data):", " get = data.get"]
    values = {} if rest is None else {rest: "data"}
    for item in fields:
        rules = _rules(item)
        kind, read = _reader_of(hints[item.name], rules.get("key"))
        if "read" in rules:
            kind, read = object, rules["read"]
        names[f"convert_{item.name}"] = _converter(item, read)
        value = values[item.name] = f"v_{item.name}"
        check = _CHECKS.get(kind, "True").replace("VALUE", value)
        lines += [
            f" {value} = get({wire_name(item)!r})",
            f" if {check}: {value} = convert_{item.name}({value}, data)",
        ]
    if issubclass(cls, Fields):  # `declared`: assigning is faster than __init__
        lines.append(" made = new(cls)")
        lines += [f" made.{name} = {value}" for name, value in values.items()]
        lines.append(" return made")
    else:
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        lines.append(f" return cls({given})")
    exec("\n".join(lines), names)  # noqa: S102  # names of fields, no input
    compiled: Callable[[JsonObject], Any] = names["read"]
    return compiled


def _converter(
    item: dataclasses.Field[Any], read: Reader
) -> Callable[[JsonValue, JsonObject], object]:
    """Return the reader for a value that is absent or not of the declared type."""
    name, rules = wire_name(item), _rules(item)

    def convert(value: JsonValue, data: JsonObject) -> object:
        if value is None and "also" in rules:
            value = data.get(rules["also"])
        if value is not None:
            return read(value, name)
        if "absent" in rules:
            return rules["absent"]
        if is_required(item):
            raise BodyError(f"{name} is missing")
        return _default_of(item)

    return convert


def _default_of(item: dataclasses.Field[Any]) -> object:
    factory = item.default_factory
    return item.default if factory is dataclasses.MISSING else factory()


_SCALARS: dict[type, tuple[type, Reader]] = {
    str: (str, to_text),
    int: (int, to_int),
    float: (float, to_float),
    bool: (bool, to_bool),
    object: (object, lambda value, _: value),
    MessageQueue: (object, to_queue),
}


def reader_of(hint: type) -> Callable[[JsonValue, str], Any]:
    """Return the reader for values of a type that fields may have."""
    return _reader_of(hint)[1]


def _reader_of(hint: type, key: str | None = None) -> tuple[type, Reader]:
    """Return the type whose values need no conversion, and the reader for the others.

    The type is `object` when all values need the reader.
    """
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _reader_of(arguments[0], key)
    if origin is dict:
        return object, _table_reader(arguments[0], arguments[1], key)
    if origin in (list, tuple, frozenset):
        return object, _list_reader(origin, arguments[0])
    return object, _object_reader(hint)


def _object_reader(cls: type) -> Reader:
    read_object = _plan(cls).read

    def read(value: JsonValue, name: str) -> object:
        return read_object(to_object(value, name))

    return read


def _list_reader(container: Callable[..., object], item_hint: type) -> Reader:
    _, read_item = _reader_of(item_hint)

    def read(value: JsonValue, name: str) -> object:
        if not isinstance(value, list):
            raise BodyError(f"{name} is not a list: {_shown(value)}")
        return container(read_item(item, name) for item in value if item is not None)

    return read


_KEY_READERS: dict[object, Callable[[str, str], object]] = {
    str: lambda key, _: key,
    int: _int_of_key,
    MessageQueue: _queue_of_key,
}


def _table_reader(key_hint: object, item_hint: type, key_field: str | None) -> Reader:
    read_key = _KEY_READERS[key_hint]
    _, read_item = _reader_of(item_hint)

    def read(value: JsonValue, name: str) -> object:
        if not isinstance(value, dict):
            raise BodyError(f"{name} is not an object: {_shown(value)}")
        if key_field is not None:
            value = {k: _with_key(v, key_field, k) for k, v in value.items()}
        return {
            read_key(key, name): read_item(item, name)
            for key, item in value.items()
            if item is not None
        }

    return read


def _with_key(item: JsonValue, key_field: str, key: str) -> JsonValue:
    if isinstance(item, dict) and item.get(key_field) is None:
        return {**item, key_field: key}
    return item


def _shown(value: JsonValue) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > _INT64_MAX:
        return "a huge number"
    return repr(value[:_SHOWN_MAX] if isinstance(value, str) else value)
