"""Records as JSON lines, fast: the same text as encoding `record_of` would give.

Plain messages are written from their bytes with one f-string; all others go the long
way. Whole chunks of them go a faster way still, `record_lines`.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final

from rmqcli.admin.read.record import nested_json, record_of, to_base64
from rmqcli.units import format_rfc3339
from rmqcli.wire.ids import host_text
from rmqcli.wire.message.properties import parse_properties
from rmqcli.wire.message.record import InnerMessage, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import DecodeFailure

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
#: Compressed, IPv6 hosts or an inner batch: not written from the bytes.
_ODD_FLAGS: Final = 0x31
_CACHE_MAX: Final = 4096
#: Names and values without quotes, backslashes or control characters, each entry ended.
_SIMPLE_PROPERTIES: Final = re.compile(
    rb'(?:[^\x00-\x1f"\\]++\x01[^\x00-\x1f"\\]++(?:\x02|\Z))+'
)
#: Three of the names, with all that stands between them and their values.
_NAMED: Final = ('"UNIQ_KEY":"', '"TAGS":"', '"KEYS":"')


class TimeTexts(dict[int, str]):
    """Epoch ms -> its JSON text, made when first met; a few thousand are kept."""

    def __init__(self) -> None:
        super().__init__()
        #: seconds -> the text up to the milliseconds; None where there is no text
        self._seconds: dict[int, str | None] = {}

    def __missing__(self, epoch_ms: int) -> str:
        seconds, ms = divmod(epoch_ms, 1000)
        before = self._seconds.get(seconds)
        if before is None:
            before = self._second(seconds)
        if len(self) >= _CACHE_MAX:
            self.clear()
        text = self[epoch_ms] = "null" if before is None else f'{before}{ms:03d}Z"'
        return text

    def _second(self, seconds: int) -> str | None:
        if len(self._seconds) >= _CACHE_MAX:
            self._seconds.clear()
        time = format_rfc3339(seconds * 1000)
        text = self._seconds[seconds] = time and f'"{time[:-4]}'
        return text


class HostTexts(dict[bytes, str]):
    """Eight bytes of an IPv4 host -> its JSON text, made when first met."""

    def __missing__(self, raw: bytes) -> str:
        if len(self) >= _CACHE_MAX:
            self.clear()
        text = self[raw] = encode_basestring(host_text(raw))
        return text


class JsonLines:
    """Makes lines, without their newlines. Keeps the texts of hosts and times."""

    def __init__(self) -> None:
        self.times = TimeTexts()
        self.hosts = HostTexts()

    def lines(
        self, queue: MessageQueue, messages: Iterable[StoredMessage | DecodeFailure]
    ) -> list[str]:
        """One line for each message."""
        head = line_head(queue)
        return [
            self._line(head, m)
            if isinstance(m, StoredMessage)
            and not isinstance(m, InnerMessage)
            and not m.sys_flag & _ODD_FLAGS
            else _ENCODER.encode(record_of(queue, m))
            for m in messages
        ]

    def _line(self, head: str, message: StoredMessage) -> str:
        data, at = message.buffer, message.at
        times, hosts = self.times, self.hosts
        store_host = data[at + 64 : at + 72]
        offset_msg_id = (store_host + data[at + 28 : at + 36]).hex().upper()
        body_end = at + 88 + message.body_bytes
        start = body_end + 3 + data[body_end]
        end = start + (data[start - 2] << 8 | data[start - 1])
        properties, msg_id, tags, keys = properties_text(data[start:end])
        return (
            f"{head}{message.queue_offset},"
            f'"commit_log_offset":{message.commit_log_offset},'
            f'"msg_id":{msg_id},"offset_msg_id":"{offset_msg_id}",'
            f'"tags":{tags},"keys":{keys},'
            f'"born_timestamp":{times[message.born_timestamp_ms]},'
            f'"store_timestamp":{times[message.store_timestamp_ms]},'
            f'"born_host":{hosts[data[at + 48 : at + 56]]},'
            f'"store_host":{hosts[store_host]},'
            f'"reconsume_times":{message.reconsume_times},"flag":{message.flag},'
            f'"sys_flag":{message.sys_flag},"store_bytes":{message.store_bytes},'
            f'"properties":{properties},{body_text(data[at + 88 : body_end])}}}'
        )


def line_head(queue: MessageQueue) -> str:
    """What all lines of a queue begin with, up to the queue offset."""
    return (
        f'{{"topic":{encode_basestring(queue.topic)},'
        f'"broker_name":{encode_basestring(queue.broker_name)},'
        f'"queue_id":{queue.queue_id},"queue_offset":'
    )


def properties_text(raw: bytes) -> tuple[str, str, str, str]:
    """The JSON of all properties, and of the values of UNIQ_KEY, TAGS and KEYS.

    Turning the separators of the whole text into JSON's is faster than quoting one
    property after the other.
    """
    if _SIMPLE_PROPERTIES.fullmatch(raw) is None:
        properties = parse_properties(raw)
        msg_id, tags, keys = (
            _ENCODER.encode(properties.get(name))
            for name in ("UNIQ_KEY", "TAGS", "KEYS")
        )
        return _ENCODER.encode(properties), msg_id, tags, keys
    # Nothing in it needs an escape, so its separators become JSON's and that is all.
    text = raw.decode("utf-8", "replace")
    if text[-1] == "\x02":
        text = text[:-1]
    text = '"' + text.replace("\x01", '":"').replace("\x02", '","') + '"'
    values = []
    for name in _NAMED:
        at = text.rfind(name)
        if at < 0:
            values.append("null")
        else:
            at += len(name)
            values.append(text[at - 1 : text.index('"', at) + 1])
    return f"{{{text}}}", values[0], values[1], values[2]


def body_text(body: bytes) -> str:
    """The keys and values of a body: its text, JSON or base64, and which it is."""
    if body[:1] in (b"{", b"["):
        value = nested_json(body)
        if value is not None:
            return f'"body_json":{body.decode()},"body_encoding":"json"'
    try:
        return f'"body":{encode_basestring(body.decode())},"body_encoding":"utf-8"'
    except UnicodeDecodeError:
        return f'"body_b64":"{to_base64(body)}","body_encoding":"base64"'
