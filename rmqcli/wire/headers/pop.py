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
    """Which messages to receive (200050), and for how long to hide them from others.

    `queue_id` -1 means any queue. `poll_time` is how long the broker may hold the
    request, counted from `born_time`, the sender's clock. `init_mode` is where a group
    without an offset begins: 0 at the queue's lowest offset, 1 near its end.
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

    The three texts are read and written by `receipt_handle.py`. `rest_num` is how many
    messages wait beyond those of the answer.
    """

    pop_time: int
    invisible_time: int
    revive_qid: int
    rest_num: int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@declared
class AckMessageRequestHeader(Header):
    """The message that was consumed (200051). `topic` may be a POP retry topic."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int


@declared
class ChangeInvisibleTimeRequestHeader(Header):
    """For how long, from now, a message stays hidden (200053).

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


@declared
class ChangeInvisibleTimeResponseHeader(Header):
    """What changes in the message's POP_CK; the old one is void."""

    pop_time: int
    invisible_time: int
    revive_qid: int


@declared
class NotificationRequestHeader(Header):
    """Which messages to wait for without receiving them (200054)."""

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
    """Which held requests to count (200055)."""

    consumer_group: str
    topic: str
    queue_id: int


@declared
class PollingInfoResponseHeader(Header):
    """How many requests the broker holds for that group, topic and queue."""

    polling_num: int
