"""Headers of POP: receiving, acknowledging and waiting for messages (5.0 and later).

All times are ms. `extra_info` is a message's POP_CK, see `receipt_handle.py`. The codes
do not fit the binary header, so such requests need the JSON header.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class PopMessageRequestHeader(Header):
    """Receive messages (200050), and hide them from others for `invisible_time`.

    `queue_id` -1 means any queue. `poll_time` is how long the broker may hold the
    request, counted from `born_time`, by the sender's clock. `init_mode` is where a
    group without an offset begins: 0 at the queue's lowest offset, 1 near its end.
    """

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_time: int
    poll_time: int
    born_time: int
    init_mode: int
    exp_type: str | None = None  # TAG or SQL92; absent is TAG
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None  # 5.1.1


@declared
class PopMessageResponseHeader(Header):
    """When and for how long the messages of the answer were hidden.

    `receipt_handle.py` reads and writes the three texts. `rest_num` is the number of
    messages that wait in addition to those of the answer.
    """

    pop_time: int
    invisible_time: int
    revive_qid: int
    rest_num: int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@declared
class PopLiteMessageRequestHeader(Header):
    """Receive messages of the lite topics that a client subscribes (200070, 5.5).

    `topic` is the topic of type LITE. Otherwise as PopMessageRequestHeader.
    """

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: int
    invisible_time: int
    poll_time: int
    born_time: int
    attempt_id: str | None = None


@declared
class PopLiteMessageResponseHeader(Header):
    """When and for how long the messages of the answer were hidden.

    `order_count_info` has the number of earlier deliveries of each message, separated
    by semicolons. Brokers leave `start_offset_info` and `msg_offset_info` out.
    """

    pop_time: int
    invisible_time: int
    revive_qid: int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@declared
class NotifyUnsubscribeLiteRequestHeader(Header):
    """Tell a client that it no longer subscribes a lite topic (200073, 5.5)."""

    lite_topic: str
    consumer_group: str
    client_id: str


@declared
class AckMessageRequestHeader(Header):
    """Acknowledge a message (200051). `topic` may be a POP retry topic."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    lite_topic: str | None = None  # 5.5


@declared
class ChangeInvisibleTimeRequestHeader(Header):
    """Change how long, from now on, a message stays hidden (200053).

    `suspend` says that the message was not consumed at all, so the attempt does not
    count.
    """

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    suspend: bool = False  # 5.5
    lite_topic: str | None = None  # 5.5


@declared
class ChangeInvisibleTimeResponseHeader(Header):
    """The new parts of the message's POP_CK; the old POP_CK is no longer valid."""

    pop_time: int
    invisible_time: int
    revive_qid: int


@declared
class NotificationRequestHeader(Header):
    """Wait for messages without receiving them (200054)."""

    consumer_group: str
    topic: str
    queue_id: int
    poll_time: int
    born_time: int
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None  # 5.5; TAG or SQL92
    exp: str | None = None


@declared
class NotificationResponseHeader(Header):
    """Whether there are messages, or whether too many requests wait already."""

    has_msg: bool = False
    polling_full: bool = False


@declared
class PollingInfoRequestHeader(Header):
    """Count the held requests of a group, topic and queue (200055)."""

    consumer_group: str
    topic: str
    queue_id: int


@declared
class PollingInfoResponseHeader(Header):
    """The number of requests that the broker holds for that group, topic and queue."""

    polling_num: int
