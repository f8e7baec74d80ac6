"""Requests of pull consumers, to a core that is driven by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.broker.effects import Peer
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.pull import PullMessageRequestHeader
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from tests.broker.driving import CLIENT, Driver
from tests.broker.sending import send_header

if TYPE_CHECKING:
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.command import RemotingCommand

PRODUCER = Peer(99, "127.0.0.1:40099")
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


def driver_with_topic(
    settings: BrokerSettings | None = None,
    *,
    queues: int = 2,
    store: MessageStore | None = None,
) -> Driver:
    """A broker with the empty topic T."""
    driver = Driver(settings, store=store)
    driver.broker.topics.put(
        TopicConfig(topic_name="T", read_queue_nums=queues, write_queue_nums=queues)
    )
    return driver


def put(driver: Driver, *tags: str, queue_id: int = 0, body_bytes: int = 5) -> None:
    """Store a message for each tag in a queue of T."""
    for tag in tags:
        properties: dict[str, str | None] = {"TAGS": tag, "n": str(len(tag))}
        answer = driver.ask(
            RequestCode.SEND_MESSAGE_V2,
            send_header("T", properties, queue_id=queue_id),
            body=b"x" * body_bytes,
            peer=PRODUCER,
        )
        assert answer is not None
        assert answer.code == 0, answer


def header(**changes: Any) -> PullMessageRequestHeader:
    """A pull of everything in queue 0 of T by the group g."""
    fields: dict[str, Any] = {
        "consumer_group": "g",
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "subscription": "*",
        "expression_type": "TAG",
    }
    return PullMessageRequestHeader(**{**fields, **changes})


def pull(driver: Driver, *, peer: Peer = CLIENT, **changes: Any) -> RemotingCommand:
    """The answer to a pull that is answered at once."""
    answer = driver.ask(RequestCode.PULL_MESSAGE, header(**changes), peer=peer)
    assert answer is not None, "held"
    return answer


def hold(driver: Driver, *, peer: Peer = CLIENT, **changes: Any) -> int:
    """Send a pull that is held; return how many commands the client got before."""
    changes = {"sys_flag": SUBSCRIPTION | SUSPEND, **changes}
    before = len(driver.sent[peer.number])
    answer = driver.ask(RequestCode.PULL_MESSAGE, header(**changes), peer=peer)
    assert answer is None, answer
    return before


def outcome(answer: RemotingCommand) -> tuple[int, str | None, int]:
    """Code, remark and next offset."""
    return answer.code, answer.remark, int(answer.ext_fields["nextBeginOffset"])


def offsets(answer: RemotingCommand) -> list[int]:
    """Queue offsets of the messages in an answer."""
    found = decode_messages(answer.body)
    return [each.queue_offset for each in found if isinstance(each, StoredMessage)]
