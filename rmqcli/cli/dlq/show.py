"""`rmq dlq show`: the letters of a group, or how many have which value."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqcli.cli.dlq.selection import LetterReadOptions, log_option, say_read
from rmqcli.cli.options import Common, command_options, option, refuse_together
from rmqcli.cli.selection import SHOW_SECTION, check_decode
from rmqcli.cli.ui.output import TABLE_FORMATS, Column, RowWriter
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, DecodeError, TextError
from rmqcli.units import counted, format_rfc3339
from rmqcli.wire.message.json import (
    BODY_FIELDS,
    EXTRA_FIELDS,
    RECORD_FIELDS,
    JsonWriter,
)
from rmqcli.wire.message.record import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.admin.dlq.log import LetterStates
    from rmqcli.admin.dlq.read import LetterReader
    from rmqcli.api.client import Client
    from rmqcli.decode import Decode
    from rmqcli.wire.message.record import DecodeFailure

#: Letters of each broker that are shown when no option chooses some.
LAST_DEFAULT = 100
#: Values that are counted one by one; letters with others are counted together.
VALUES_MAX = 100_000

_HIDDEN = {name: Column(name, text, title=None) for name, text in RECORD_FIELDS}
_SHOWN = {
    "store_timestamp": Column("store_timestamp", title="DEAD SINCE", priority=20),
    "msg_id": Column("msg_id", title="MSG ID", priority=50),
    "tags": Column("tags", priority=40),
    "keys": Column("keys", priority=30, shorten=True),
}
COLUMNS = (
    Column("letter", "its name: BROKER:QUEUE:OFFSET"),
    Column("origin_topic", "topic to which it was first sent", title="ORIGIN"),
    Column("deliveries", "how often consumers failed", title="FAILED", align="right"),
    Column("origin_msg_id", "the broker's id of the message there", title=None),
    Column(
        "origin_queue",
        "the queue in which it is there; null if it is not stored any more",
        title=None,
    ),
    Column("origin_offset", "its offset in that queue", title=None),
    Column("redriven_times", "earlier redrives of this message", title=None),
    Column("redriven_from", "the letter of the last of them", title=None),
    Column(
        "redriven",
        "yes, no, or maybe if a redrive was killed, by the log; null without one",
        states={"maybe": "bad"},
        priority=5,
    ),
    *(
        _SHOWN[name]._replace(help=text) if name in _SHOWN else _HIDDEN[name]
        for name, text in RECORD_FIELDS
    ),
    Column("body", BODY_FIELDS[0][1], priority=10, shorten=True),
    *(Column(name, text, title=None) for name, text in BODY_FIELDS[1:]),
    Column("error", "what in the message could not be decoded", title=None),
)
#: What follows with a decoder.
_OF_DECODE = ("value", "value_format", "decode_error")
VALUE_COLUMNS = tuple(
    Column(name, text, title=None) for name, text in EXTRA_FIELDS if name in _OF_DECODE
)
BY_COLUMNS = (
    Column("value", "the value; null for letters without one"),
    Column("count", "letters", align="right"),
    Column("oldest", "when the oldest was stored", priority=20),
    Column("newest", "when the newest was stored", priority=10),
    Column("example", "one of them: BROKER:QUEUE:OFFSET", priority=30),
)
_OTHERS = "(other values)"
#: Formats that show letters as `rmq tail` shows messages.
_AS_MESSAGES = ("pretty", "raw", "hex")


def _parse_by(text: str) -> str:
    kind, colon, name = text.partition(":")
    if text == "tag" or (kind == "property" and colon and name):
        return text
    if text.startswith("value.") and all(text.split(".")[1:]):
        return text
    hint = "write tag, property:NAME or value.PATH, such as value.error.code"
    raise TextError(text, "not a value", start=0, end=max(1, len(text)), hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions(LetterReadOptions):
    """The options of `rmq dlq show` as they were typed."""

    by: Any = option(
        parser=_parse_by,
        section=SHOW_SECTION,
        metavar="VALUE",
        help="Count by tag, property:NAME, or value.PATH (a field of the body).",
    )
    log: Path | None = log_option(section=SHOW_SECTION)


@command_options(
    ShowOptions,
    formats=(*TABLE_FORMATS, *_AS_MESSAGES),
    fields=(*COLUMNS, *VALUE_COLUMNS, *BY_COLUMNS),
    changes=False,
)
def show(common: Common, options: ShowOptions) -> None:
    """Show the dead letters of a group, or count them by a value.

    Example: rmq dlq show billing --by property:region

    Without an option that chooses letters, the last 100 of each broker. JSON has the
    fields of rmq tail, and what is known of the origin; pretty, raw and hex show the
    letters as rmq tail shows messages. RocketMQ does not record why a message failed.
    Reading changes nothing. A write-only topic can be read, too, but not of a broker of
    4.6.0: make it readable first, with rmq topic update %DLQ%GROUP --perm rw --broker
    NAME.
    """
    from rmqcli.admin.dlq.read import LetterReader
    from rmqcli.admin.dlq.redriven import redrives_of

    options.check()
    as_messages = f"-o {common.output}"
    given = {
        "--by": options.by is not None,
        "--log": options.log is not None,
        as_messages: common.output in _AS_MESSAGES,
    }
    refuse_together(given, combinations(given, 2))
    if options.log is not None and not options.log.exists():
        # An empty log would say of every letter that it was not redriven.
        raise ConfigError(f"{options.log} does not exist")
    if options.decode is not None and options.where is None and options.by is None:
        check_decode(common.output)
    wanted = options.filter()
    last = options.last
    if options.is_plain and options.by is None:
        last = LAST_DEFAULT
    with common.open_client() as client:
        found = options.find(client, last=last)
        reader = LetterReader(client, found, wanted)
        if options.by is not None:
            counts = _count(reader, options.by, options.decode)
            common.write_rows(counts, BY_COLUMNS)
            say_read(common, reader, shown=counted(len(counts), "value"))
            return
        is_cut = found.is_cut and options.last is None
        if common.output in _AS_MESSAGES:
            shown = _write_as_messages(common, reader, options.decode)
            _say_shown(common, reader, shown, is_cut=is_cut)
            return
        states = redrives_of(client, options.group, options.log)
        writer = RowWriter(
            columns=_columns(options), fmt=common.output, color=common.use_color
        )
        shown = 0
        for rows in _rows(client, options, reader, states):
            writer.write(rows)
            shown += len(rows)
        writer.close()
        _say_shown(common, reader, shown, is_cut=is_cut)


def _write_as_messages(
    common: Common, reader: LetterReader, decode: Decode | None
) -> int:
    """Write the letters as `rmq tail` does; return how many."""
    from rmqcli.admin.tail.batch import TailCounts
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.cli.ui.records.output import make_writer

    writer = make_writer(
        common.output, template=None, color=common.use_color, decode=decode
    )
    batcher = writer.batcher(TailFilter(), TailCounts())  # the reader has filtered
    shown = 0
    for queue, letters in reader:
        writer.write(batcher.items(queue, letters))
        shown += len(letters)
    writer.close()
    return shown


def _say_shown(
    common: Common, reader: LetterReader, shown: int, *, is_cut: bool
) -> None:
    if is_cut:
        common.messages.info("only the last of each broker; --from earliest: all")
    say_read(common, reader, shown=f"{shown:,} shown")


def _columns(options: ShowOptions) -> tuple[Column, ...]:
    return COLUMNS if options.decode is None else (*COLUMNS, *VALUE_COLUMNS)


def _rows(
    client: Client,
    options: ShowOptions,
    reader: LetterReader,
    states: LetterStates | None,
) -> Iterator[list[dict[str, object]]]:
    from rmqcli.admin.dlq.letter import facts_of, place_of
    from rmqcli.admin.dlq.redriven import is_redriven
    from rmqcli.admin.message.origin import find_origins

    group, lines = options.group, JsonWriter(options.decode)
    names = [column.name for column in _columns(options)]
    for queue, letters in reader:
        rows = []
        origins = find_origins(client, group, letters)
        texts = lines.lines(queue, letters)
        for letter, origin, line in zip(letters, origins, texts, strict=True):
            row: dict[str, object] = dict.fromkeys(names)
            row |= json.loads(line)
            row["letter"] = place_of(queue, letter.queue_offset)
            if isinstance(letter, StoredMessage):
                facts = facts_of(group, letter)
                row |= {
                    "origin_topic": facts.origin_topic,
                    "origin_msg_id": facts.origin_msg_id,
                    "origin_queue": origin and str(origin[0]),
                    "origin_offset": origin and origin[1],
                    "deliveries": facts.deliveries,
                    "redriven_times": facts.redriven_times,
                    "redriven_from": facts.redriven_from,
                    "redriven": is_redriven(states, queue, letter),
                }
            rows.append(row)
        yield rows


def _count(
    reader: LetterReader, by: str, decode: Decode | None
) -> list[dict[str, object]]:
    """Count the letters by a value, the most frequent first."""
    from rmqcli.admin.dlq.letter import place_of

    found: dict[str | None, list[Any]] = {}
    for queue, letters in reader:
        for letter in letters:
            value = _value(letter, by, decode)
            if value not in found and len(found) >= VALUES_MAX:
                value = _OTHERS
            time_ms = (
                letter.store_timestamp_ms if isinstance(letter, StoredMessage) else None
            )
            known = found.get(value)
            if known is None:
                place = place_of(queue, letter.queue_offset)
                found[value] = [1, time_ms, time_ms, place]
                continue
            known[0] += 1
            if time_ms is not None:
                known[1] = time_ms if known[1] is None else min(known[1], time_ms)
                known[2] = time_ms if known[2] is None else max(known[2], time_ms)
    return [
        {
            "value": value,
            "count": count,
            "oldest": oldest and format_rfc3339(oldest),
            "newest": newest and format_rfc3339(newest),
            "example": place,
        }
        for value, (count, oldest, newest, place) in sorted(
            found.items(), key=lambda item: (-item[1][0], item[0] or "")
        )
    ]


def _value(
    letter: StoredMessage | DecodeFailure, by: str, decode: Decode | None
) -> str | None:
    """Return the text of the value by which letters are counted; None without one."""
    if not isinstance(letter, StoredMessage):
        return None
    if by == "tag":
        return letter.tags
    if by.startswith("property:"):
        return letter.properties.get(by.removeprefix("property:"))
    try:
        body = letter.body
        value: object = json.loads(body) if decode is None else decode.value(body)
    except (ValueError, RecursionError, DecodeError):
        return None
    for name in by.split(".")[1:]:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
