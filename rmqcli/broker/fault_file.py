"""Faults from a JSON file: the form that `rmq serve --faults FILE` takes.

    {"faults": [
      {"do": "answer", "answer_code": 14, "remark": "busy", "code": "PULL_MESSAGE",
       "topic": "orders", "nth": 3, "times": 2},
      {"do": "delay", "delay_ms": 500, "group": "billing"},
      {"do": "disconnect", "code": 310, "is_handled": true, "broker": "broker-a"}
    ]}

`do` is answer, drop-request, drop-answer, delay, reorder, disconnect or corrupt
(`part`: length, header or body). `code` is a request's number or Java name; `broker`,
`group`, `topic` and `queue_id` select requests; the fault applies from the `nth`
matching request on (default 1), `times` times (default: without limit). Unknown keys
are errors, so that a misspelt fault is noticed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rmqcli.broker import faults
from rmqcli.errors import ConfigError
from rmqcli.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import enum
    from pathlib import Path

_RULES_MAX: Final = 1_000
_FILE_BYTES_MAX: Final = 1024 * 1024
_INT32_MAX: Final = (1 << 31) - 1
_MATCH_KEYS: Final = ("code", "broker", "group", "topic", "queue_id")
#: keys of each action, in addition to the keys that every fault has
_ACTION_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "answer": ("answer_code", "remark"),
    "drop-request": (),
    "drop-answer": (),
    "delay": ("delay_ms",),
    "reorder": (),
    "disconnect": ("is_handled",),
    "corrupt": ("part",),
}
_PARTS: Final = ("length", "header", "body")


def read_fault_file(path: Path) -> list[faults.Rule]:
    """Read the faults in a file. Raises ConfigError naming file, fault and key."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read faults from {path}: {reason}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"faults in {path} exceed {_FILE_BYTES_MAX} bytes")
    try:
        return parse_faults(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"faults in {path} are not UTF-8") from error
    except ConfigError as error:
        raise ConfigError(
            f"faults in {path}: {error.message}", hint=error.hint
        ) from error


def parse_faults(text: str) -> list[faults.Rule]:
    """Read the faults in a JSON text. Raises ConfigError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from error
    rules = document.get("faults") if isinstance(document, dict) else None
    if not isinstance(rules, list):
        raise ConfigError(
            "'faults' is not a list", hint='write {"faults": [{"do": "delay", ...}]}'
        )
    if len(document) > 1:
        other = next(key for key in document if key != "faults")
        raise ConfigError(f"unknown key {other!r}; only 'faults' is allowed")
    if len(rules) > _RULES_MAX:
        raise ConfigError(f"{len(rules)} faults exceed the limit of {_RULES_MAX}")
    return [_Fault(number, rule).rule() for number, rule in enumerate(rules, 1)]


class _Fault:
    """One entry of the list, read key by key."""

    def __init__(self, number: int, value: object) -> None:
        if not isinstance(value, dict):
            raise ConfigError(f"fault {number} is not an object")
        self.number = number
        self.value: dict[str, object] = value

    def rule(self) -> faults.Rule:
        do = self.text("do")
        if do not in _ACTION_KEYS:
            raise self.error(f"'do' is not one of {', '.join(_ACTION_KEYS)}")
        known = {"do", "nth", "times", *_MATCH_KEYS, *_ACTION_KEYS[do]}
        for key in self.value:
            if key not in known:
                raise self.error(f"unknown key {key!r} for {do!r}")
        match = faults.Match(
            code=self.code("code", RequestCode),
            broker=self.text("broker"),
            group=self.text("group"),
            topic=self.text("topic"),
            queue_id=self.number_of("queue_id", lowest=0),
        )
        nth = self.number_of("nth", lowest=1) or 1
        times = self.number_of("times", lowest=1)
        return faults.Rule(match, self.action(do), nth=nth, times=times)

    def action(self, do: str) -> faults.Action:
        if do == "answer":
            code = self.code("answer_code", ResponseCode)
            if code is None:
                raise self.error("'answer_code' is missing")
            return faults.answer(code, self.text("remark"))
        if do == "delay":
            delay_ms = self.number_of("delay_ms", lowest=0)
            if delay_ms is None:
                raise self.error("'delay_ms' is missing")
            return faults.delay(delay_ms)
        if do == "disconnect":
            return faults.disconnect(is_handled=self.flag("is_handled"))
        if do == "corrupt":
            part = self.text("part") or "header"
            for known in _PARTS:
                if part == known:
                    return faults.corrupt(known)
            raise self.error(f"'part' is not one of {', '.join(_PARTS)}")
        if do == "reorder":
            return faults.reorder()
        return faults.drop_request() if do == "drop-request" else faults.drop_answer()

    def text(self, key: str) -> str | None:
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(f"{key!r} is not a string")
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"{key!r} is not a boolean")
        return value

    def number_of(self, key: str, *, lowest: int) -> int | None:
        value = self.value.get(key)
        if value is None:
            return None
        if type(value) is not int or not lowest <= value <= _INT32_MAX:
            raise self.error(f"{key!r} is not an integer from {lowest} to {_INT32_MAX}")
        return value

    def code(self, key: str, names: type[enum.IntEnum]) -> int | None:
        """Return a code, given as a number or by RocketMQ's name for it."""
        value = self.value.get(key)
        if isinstance(value, str):
            if value not in names.__members__:
                raise self.error(f"{key!r}: RocketMQ has no code named {value!r}")
            return int(names[value])
        return self.number_of(key, lowest=0)

    def error(self, what: str) -> ConfigError:
        return ConfigError(f"fault {self.number}: {what}")
