"""Puts messages into a broker without a client, through the broker's own handler.

So topics are created, delays and transactions work, and held pulls wake as if a
producer had sent the messages. Only sockets and faults are bypassed.
"""

from __future__ import annotations

from dataclasses import field
from datetime import UTC
from typing import TYPE_CHECKING, Final

from rmqcli.broker.effects import Effect, Peer, Send
from rmqcli.dataclass import dataclass
from rmqcli.errors import BrokerError
from rmqcli.wire.codes import LanguageCode, RequestCode, ResponseCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.header import from_ext_fields, to_ext_fields
from rmqcli.wire.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqcli.wire.ids import UniqueId, encode_unique_id, since_month_start_ms
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.properties import encode_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.broker.server.connection import Core
    from rmqcli.broker.server.server import Server
    from rmqcli.clock import Now

PRODUCER_GROUP: Final = "rmqcli-seed"
#: Not a real connection: their numbers begin at 1.
_PEER: Final = Peer(0, "127.0.0.1:1")
_BATCH_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A message to store. `properties` are added to tags, keys and delay level."""

    body: bytes = b""
    tags: str | None = None
    keys: str | Sequence[str] = ()
    delay_level: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0


@dataclass(frozen=True, slots=True)
class Seeded:
    """The place of a stored message, with its ids.

    `msg_id` is the producer's id, `offset_msg_id` the broker's. The place of a delayed
    message is in SCHEDULE_TOPIC_XXXX.
    """

    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str


class Seeder:
    """Sends messages from inside the process. For the I/O thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._count = 0

    def put(
        self,
        core: Core,
        broker_name: str,
        topic: str,
        queue_id: int,
        seeds: Sequence[Seed],
    ) -> list[Seeded]:
        """Put messages into one queue, in order.

        Raises BrokerError with the code of a refusal.
        """
        placed: list[Seeded] = []
        for start in range(0, len(seeds), _BATCH_MAX):
            chunk = seeds[start : start + _BATCH_MAX]
            if len(chunk) > 1 and not any(seed.delay_level for seed in chunk):
                placed += self._send(core, broker_name, topic, queue_id, chunk)
            else:
                for seed in chunk:
                    placed += self._send(core, broker_name, topic, queue_id, [seed])
        return placed

    def _send(
        self,
        core: Core,
        broker_name: str,
        topic: str,
        queue_id: int,
        seeds: Sequence[Seed],
    ) -> list[Seeded]:
        now = self._server.now()
        ids = [self._unique_id(now) for _ in seeds]
        # From 5.0 on, an empty body is taken in batches only.
        is_batch = len(seeds) > 1 or not seeds[0].body
        properties = [
            _properties(seed, unique_id)
            for seed, unique_id in zip(seeds, ids, strict=True)
        ]
        header = SendMessageRequestHeaderV2(
            producer_group=PRODUCER_GROUP,
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=now.epoch_ms,
            flag=seeds[0].flag,
            properties=encode_properties(
                {"WAIT": "true"} if is_batch else properties[0]
            ),
            reconsume_times=0,
            batch=is_batch,
        )
        code = RequestCode.SEND_MESSAGE_V2
        body = seeds[0].body
        if is_batch:
            code = RequestCode.SEND_BATCH_MESSAGE
            body = encode_batch(
                BatchItem(seed.body, each, seed.flag)
                for seed, each in zip(seeds, properties, strict=True)
            )
        command = RemotingCommand(
            code=code,
            language=int(LanguageCode.JAVA),
            ext_fields=to_ext_fields(header),
            body=body,
        )
        answer = self._answered(core.handle(_PEER, command, now))
        if answer is None or answer.code != ResponseCode.SUCCESS:
            raise _refused(answer, broker_name)
        stored = from_ext_fields(SendMessageResponseHeader, answer.ext_fields)
        return [
            Seeded(broker_name, stored.queue_id, stored.queue_offset + n, unique, place)
            for n, (unique, place) in enumerate(
                zip(ids, stored.msg_id.split(","), strict=True)
            )
        ]

    def _answered(self, effects: Iterable[Effect]) -> RemotingCommand | None:
        """Return the answer to this request; the server applies all other effects."""
        answer: RemotingCommand | None = None
        others: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and effect.peer.number == _PEER.number:
                answer = effect.command if effect.command.is_response else answer
            else:
                others.append(effect)
        self._server.apply(others)
        return answer

    def _unique_id(self, now: Now) -> str:
        self._count += 1
        return encode_unique_id(
            UniqueId(
                ip="127.0.0.1",
                pid=0,
                # Ids must differ even while a manual clock stands still.
                class_loader_hash=self._count >> 16,
                since_month_start_ms=since_month_start_ms(now.epoch_ms, tz=UTC),
                counter=self._count,
            )
        )


def _properties(seed: Seed, unique_id: str) -> dict[str, str]:
    keys = seed.keys if isinstance(seed.keys, str) else " ".join(seed.keys)
    known = {
        "KEYS": keys or None,
        "TAGS": seed.tags,
        "DELAY": str(seed.delay_level) if seed.delay_level else None,
        "UNIQ_KEY": unique_id,
        "WAIT": "true",
    }
    named = {name: value for name, value in known.items() if value is not None}
    return {**named, **seed.properties}


def _refused(answer: RemotingCommand | None, broker_name: str) -> BrokerError:
    if answer is None:
        raise BrokerError(f"{broker_name} did not answer", code=-1, name="NO_ANSWER")
    known = ResponseCode.__members__.values()
    name = next((each.name for each in known if each == answer.code), str(answer.code))
    remark = answer.remark or ""
    return BrokerError(
        f"{broker_name} refused with {name} ({answer.code}): {remark}",
        code=answer.code,
        name=name,
        remark=remark,
    )
