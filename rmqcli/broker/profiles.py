"""Version profiles: the differences between RocketMQ's versions that a client can see.

`--like VERSION` chooses a profile. It has one field for each difference; the defaults
are those of 5.5.0. A number in parentheses is the response code.
Not imitated: a name server's orderMessageEnable (off by default in all three versions),
so routes have no orderTopicConf.

Source: the answers of real brokers of the three versions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError
from rmqcli.wire.version import V4_6_0, V4_9_7, V5_5_0


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionProfile:
    """How one version of RocketMQ behaves."""

    name: str = "5.5.0"
    #: the ordinal in each answer
    version: int = V5_5_0
    #: a request with a binary header is answered in the same form
    answers_binary: bool = False

    # sending
    #: the code for an illegal topic name or queue id
    invalid_parameter_code: int = 29
    #: names of topics are checked when sending
    checks_topic_names: bool = True
    #: clients cannot write to RocketMQ's own topics (16)
    forbids_system_topics: bool = True
    #: clients cannot write to TBW102 (1)
    reserves_default_topic: bool = False
    #: a message without a body is refused (1)
    refuses_empty_body: bool = True
    #: the broker adds MSG_REGION, TRACE_ON and, if it is missing, UNIQ_KEY to stored
    #: messages, and answers with UNIQ_KEY as transactionId
    adds_unique_key_and_region: bool = True
    #: the handle that POP gave a message is not stored when a client sends the message
    removes_pop_handles: bool = True
    #: a message's priority chooses its queue, and POP of PRIORITY topics begins with
    #: the highest
    has_priorities: bool = True
    #: a message with a lite topic is also put into the queue (LMQ) of that lite topic
    has_lite_topics: bool = True
    #: the property WAIT is not stored
    strips_wait: bool = False
    #: a retry sent by a producer becomes a dead letter when reconsumeTimes reaches the
    #: maximum; otherwise when it exceeds the maximum
    dead_at_reconsume_times_max: bool = False
    #: a retry sent by a producer becomes a dead letter if its group holds queue locks
    dead_while_group_holds_locks: bool = True
    #: permissions of a new DLQ topic
    dlq_perm: int = 6
    #: QUERY_CONSUME_QUEUE shows the queue; otherwise its answer is always empty
    shows_consume_queue: bool = True
    #: a dead letter also has ORIGIN_MESSAGE_ID, and DELAY with the value 0
    marks_dead_letters: bool = True
    #: SCHEDULE_TOPIC_XXXX is in the topic table
    has_schedule_topic: bool = True
    #: TIMER_* properties have an effect, and 5.x's own topics exist
    has_timer: bool = True
    #: half messages and committed messages have __transactionId__
    adds_transaction_id: bool = True
    #: a committed message keeps REAL_TOPIC and REAL_QID
    keeps_real_topic_of_transactions: bool = False
    #: how often the broker checks undecided transactions
    transaction_check_interval_ms: int = 30_000

    # reading
    #: answers to pulls have topicSysFlag and groupSysFlag, refusals have forbiddenType
    answers_sys_flags: bool = True
    #: a pull beyond the end of a queue that begins at 0 is corrected to 0, not to the
    #: end
    overflow_starts_over: bool = False
    #: a pull of -1 messages is refused (1); otherwise it gets one message
    refuses_negative_max_msg_nums: bool = False
    #: when the broker corrects a pull's offset, it stores a message in
    #: OFFSET_MOVED_EVENT
    writes_offset_moved_events: bool = False
    #: a slave sends clients that are not far behind back to the master, with
    #: PULL_RETRY_IMMEDIATELY (20) when it has no message for them
    slave_sends_to_master: bool = True
    #: a slave stores the offsets that pulls carry
    slave_takes_commits: bool = True
    #: a queue without a committed offset answers 0 only if its message at 0 exists
    zero_offset_needs_message: bool = True
    #: commits for an unknown group (26) or topic (17) are refused, and a query can ask
    #: for an error in place of 0 (setZeroIfNotFound)
    checks_offset_commits: bool = True
    #: a search by time finds the nearest message, before or after that time
    searches_nearest_time: bool = False
    #: the remark of the answer to request 31
    min_offset_remark: str | None = ""
    #: SQL92 has the operators CONTAINS, STARTSWITH and ENDSWITH
    has_sql_text_words: bool = True
    #: a client of a group that may not be created becomes a member of it
    joins_groups_that_are_missing: bool = False

    # name server
    #: the URL in the answer for an unknown topic
    route_help: str = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
    #: clients from 4.9.4 on get routes in strict JSON; otherwise broker ids are bare
    #: keys
    strict_routes: bool = True
    #: broker data have enableActingMaster
    has_acting_master: bool = True
    #: the name of the field with a queue's system flag
    topic_sys_flag_name: str = "topicSysFlag"

    # administration
    #: bodies and config files have the fields that 5.x added: attributes, pullOffset,
    #: stateVersion, forbiddenTable, totals beside lists
    has_bodies_of_5: bool = True
    #: request 222 sets offsets at the broker; otherwise the broker sends request 220 to
    #: the group's members, or answers CONSUMER_NOT_ONLINE (206) if there are none
    resets_at_broker: bool = True
    #: a group that was deleted without cleanOffset is created again, with defaults
    recreates_deleted_group: bool = True
    #: a broker that registers makes topics unordered that have no fixed queues in the
    #: name server, if any topic has; those that have are always made ordered
    unorders_unlisted_topics: bool = False
    #: admins can neither change nor delete system topics
    protects_system_topics: bool = True
    #: deleting a topic deletes its offsets
    deletes_offsets_of_topics: bool = True
    #: the group CID_RMQ_SYS_TRANS is built in
    has_transaction_group: bool = True


PROFILE_5_5_0: Final = VersionProfile()
#: what 4.6.0 and 4.9.7 have in common
_PROFILE_4: Final = VersionProfile(
    invalid_parameter_code=1,
    refuses_empty_body=False,
    adds_unique_key_and_region=False,
    removes_pop_handles=False,
    has_priorities=False,
    has_lite_topics=False,
    unorders_unlisted_topics=True,
    dead_at_reconsume_times_max=True,
    dead_while_group_holds_locks=False,
    has_timer=False,
    adds_transaction_id=False,
    keeps_real_topic_of_transactions=True,
    transaction_check_interval_ms=60_000,
    answers_sys_flags=False,
    writes_offset_moved_events=True,
    slave_sends_to_master=False,
    slave_takes_commits=False,
    zero_offset_needs_message=False,
    checks_offset_commits=False,
    searches_nearest_time=True,
    min_offset_remark=None,
    has_sql_text_words=False,
    joins_groups_that_are_missing=True,
    has_bodies_of_5=False,
    resets_at_broker=False,
    recreates_deleted_group=False,
    deletes_offsets_of_topics=False,
    has_transaction_group=False,
    route_help="http://rocketmq.apache.org/docs/faq/",
    has_acting_master=False,
)
PROFILE_4_9_7: Final = replace(
    _PROFILE_4,
    name="4.9.7",
    version=V4_9_7,
    answers_binary=True,
    strips_wait=True,
    refuses_negative_max_msg_nums=True,
)
PROFILE_4_6_0: Final = replace(
    _PROFILE_4,
    name="4.6.0",
    version=V4_6_0,
    checks_topic_names=False,
    forbids_system_topics=False,
    reserves_default_topic=True,
    dlq_perm=2,
    shows_consume_queue=False,
    marks_dead_letters=False,
    has_schedule_topic=False,
    overflow_starts_over=True,
    protects_system_topics=False,
    strict_routes=False,
    topic_sys_flag_name="topicSynFlag",
)

PROFILES: Final = {
    each.name: each for each in (PROFILE_4_6_0, PROFILE_4_9_7, PROFILE_5_5_0)
}


def profile_of(name: str) -> VersionProfile:
    """Return the profile of a version. Raises UsageError if there is none."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UsageError(
            f"RocketMQ version {name!r} is not supported",
            hint=f"use one of {', '.join(PROFILES)}",
        ) from None
