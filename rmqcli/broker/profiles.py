"""Version profiles: what differs between RocketMQ's versions and a client can see.

`--like VERSION` chooses one. One field for each difference; the defaults are 5.5.0's.
Not imitated: a name server's orderMessageEnable (off by default in all three versions),
so routes have no orderTopicConf.

Source: the answers of real brokers of the three versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

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
    #: RocketMQ's own topics cannot be written: 16
    forbids_system_topics: bool = True
    #: TBW102 cannot be written: 1
    reserves_default_topic: bool = False
    #: a message without body is refused: 1
    refuses_empty_body: bool = True
    #: UNIQ_KEY (where it is missing), MSG_REGION and TRACE_ON are stored too, and the
    #: answer has UNIQ_KEY as transactionId
    adds_unique_key_and_region: bool = True
    #: WAIT is not stored
    strips_wait: bool = False
    #: a retry sent by a producer is dead with reconsumeTimes = max; else above it
    dead_at_reconsume_times_max: bool = False
    #: a retry sent by a producer is dead when its group holds queue locks
    dead_while_group_holds_locks: bool = True
    #: permissions of a new DLQ topic
    dlq_perm: int = 6
    #: a dead letter also has ORIGIN_MESSAGE_ID, and DELAY 0
    marks_dead_letters: bool = True
    #: SCHEDULE_TOPIC_XXXX is in the topic table
    has_schedule_topic: bool = True
    #: TIMER_* properties have an effect, and 5.x's own topics exist
    has_timer: bool = True
    #: a half and a committed message have __transactionId__
    adds_transaction_id: bool = True
    #: a committed message keeps REAL_TOPIC and REAL_QID
    keeps_real_topic_of_transactions: bool = False
    #: how often the broker checks undecided transactions
    transaction_check_interval_ms: int = 30_000

    # reading
    #: pull answers have topicSysFlag and groupSysFlag, refusals a forbiddenType
    answers_sys_flags: bool = True
    #: a pull from beyond the end of a queue that begins at 0 is sent to 0, not the end
    overflow_starts_over: bool = False
    #: a pull of -1 messages is refused: 1; else it gets one message
    refuses_negative_max_msg_nums: bool = False
    #: a pull whose offset is corrected stores a message in OFFSET_MOVED_EVENT
    writes_offset_moved_events: bool = False
    #: a slave without new messages answers 20 and names the master
    slave_sends_to_master: bool = True
    #: a slave stores the offsets that pulls carry
    slave_takes_commits: bool = True
    #: an offset never committed is 0 only if the queue's first message exists
    zero_offset_needs_message: bool = True
    #: commits for an unknown group or topic are refused: 26, 17
    checks_offset_commits: bool = True
    #: an offset by time is the nearest message's, before or after
    searches_nearest_time: bool = False
    #: the answer to 31 has an empty remark
    min_offset_remark: str | None = ""
    #: SQL92 has CONTAINS, STARTSWITH and ENDSWITH
    has_sql_text_words: bool = True

    # name server
    #: the address of help in the answer for an unknown topic
    route_help: str = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
    #: routes in strict JSON for clients from 4.9.4; else broker ids are bare keys
    strict_routes: bool = True
    #: enableActingMaster in broker data
    has_acting_master: bool = True
    #: the name of a queue's topicSysFlag
    topic_sys_flag_name: str = "topicSysFlag"

    # administration
    #: bodies and config files have the fields that 5.x added: attributes, pullOffset,
    #: stateVersion, forbiddenTable, totals beside lists
    has_bodies_of_5: bool = True
    #: 222 sets offsets at the broker; else it sends 220 to the members, 206 for none
    resets_at_broker: bool = True
    #: a group that was deleted without cleanOffset is created again, with defaults
    recreates_deleted_group: bool = True
    #: system topics can be neither set nor deleted by admins
    protects_system_topics: bool = True
    #: deleting a topic deletes its offsets
    deletes_offsets_of_topics: bool = True
    #: CID_RMQ_SYS_TRANS is built in
    has_transaction_group: bool = True


PROFILE_5_5_0: Final = VersionProfile()
#: what 4.6.0 and 4.9.7 have in common
_PROFILE_4: Final = VersionProfile(
    invalid_parameter_code=1,
    refuses_empty_body=False,
    adds_unique_key_and_region=False,
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
    """The profile of a version. Raises UsageError for one that is not imitated."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UsageError(
            f"no profile of version {name!r}", hint=f"one of {', '.join(PROFILES)}"
        ) from None
