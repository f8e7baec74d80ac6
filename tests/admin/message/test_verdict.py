"""What evidence proves of a message, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqcli.admin.lag.check_points import PopDelivery
from rmqcli.admin.message.verdict import GroupEvidence, Holder, MessageCopy, judge
from rmqcli.engine.message import Origin
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from rmqcli.wire.subscription import parse_subscription

STORED_MS = 1_800_000_000_000
QUEUE = MessageQueue("orders", "broker-a", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def message(rmq_cluster_factory):
    """A message at offset 5, with a tag, that was stored at STORED_MS."""
    from rmqcli import Admin
    from rmqcli.testing import ManualClock, Seed

    cluster = rmq_cluster_factory(queues=1, clock=ManualClock(now_ms=STORED_MS))
    cluster.create_topic("orders")
    seeds = [Seed(body=b"a", tags="New") for _ in range(6)]
    (*_, seeded) = cluster.send("orders", seeds, queue_id=0)
    with Admin(namesrv=cluster.namesrv) as admin:
        (found,) = admin.find_messages(seeded.offset_msg_id).messages
    assert isinstance(found.origin, Origin)
    return found


def evidence(
    *,
    since_ms=STORED_MS - HOUR_MS,
    expression="*",
    begins="CONSUME_FROM_LAST_OFFSET",
    own=None,
    behind_ms=1_000,
    **more,
):
    subscription = parse_subscription("orders", expression, sub_version=since_ms)
    holder = Holder(
        client_id="c1",
        unfinished=None,
        pulled_ms=STORED_MS + 60_000 - behind_ms,
        asked_ms=STORED_MS + 60_000,
        subscription=parse_subscription("orders", own or expression),
    )
    fields = {"committed": 6, "pulled": 6, "holder": holder, **more}
    return GroupEvidence(
        group="billing",
        connection=ConsumerConnection(
            connections=(Connection(client_id="c1"),),
            subscriptions={"orders": subscription},
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where=begins,
        ),
        **fields,
    )


def verdict(message, seen, min_offset=0):
    found = judge(message, seen, min_offset=min_offset)
    return found.verdict.value, found.reason or ""


def test_members_that_were_there_before_the_message_have_consumed_it(message):
    assert verdict(message, evidence()) == ("consumed", "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"since_ms": 0}, "the members do not report when they subscribed"),
        # It was called consumed: an hour after the beginning of 1970 is long ago.
        (
            {"since_ms": 0, "behind_ms": HOUR_MS},
            "the members do not report when they subscribed",
        ),
        ({"since_ms": STORED_MS + 1}, "they may have had another filter before"),
        ({"since_ms": STORED_MS - 59_999}, "begins at the end of a queue"),
        # The member's clock is an hour behind: it subscribed after the message.
        ({"behind_ms": HOUR_MS + 1}, "they may have had another filter before"),
        ({"own": "New"}, "has the filter 'New', and another has '*'"),
        ({"moved_by": "b1"}, "a reset moved the group over it"),
        ({"no_copies": "broker-b is silent"}, "broker-b is silent"),
        ({"holder": None}, "no member tells that it pulls the queue"),
        ({"connection": None}, "no member is online"),
        ({"committed": None}, "no offset was ever committed"),
        ({"no_offset": "broker-a is silent"}, "broker-a is silent"),
    ],
)
def test_what_speaks_against_consumption_makes_it_unknown(message, changes, reason):
    fields = {k: v for k, v in changes.items() if k != "connection"}
    seen = evidence(**fields)
    if "connection" in changes:
        seen = replace(seen, connection=None)
    found, why = verdict(message, seen)
    assert (found, reason in why) == ("unknown", True), why


def test_a_clock_that_is_ahead_proves_nothing_less(message):
    """It subscribed even earlier than its time says."""
    seen = evidence(since_ms=STORED_MS + HOUR_MS - 120_000, behind_ms=-HOUR_MS)
    assert verdict(message, seen) == ("consumed", "")


def test_a_member_without_a_time_of_its_last_pull_has_a_clock_that_is_not_known(
    message,
):
    seen = evidence()
    assert seen.holder is not None
    seen.holder = replace(seen.holder, pulled_ms=None)
    assert verdict(message, seen) == (
        "unknown",
        "c1 does not tell the time by its clock",
    )


@pytest.mark.parametrize(
    ("since_ms", "expected"),
    [(STORED_MS - HOUR_MS, "consumed"), (STORED_MS + 1, "unknown")],
)
def test_go_clients_tell_when_they_subscribed_in_nanoseconds(
    message, since_ms, expected
):
    seen = evidence(since_ms=since_ms * 1_000_000)
    assert verdict(message, seen)[0] == expected


def test_members_that_begin_at_the_first_message_skip_none(message):
    seen = evidence(since_ms=STORED_MS - 1, begins="CONSUME_FROM_FIRST_OFFSET")
    assert verdict(message, seen) == ("consumed", "")


def test_a_tag_that_is_not_selected_is_filtered_only_by_who_was_there(message):
    seen = evidence(expression="Paid")
    assert verdict(message, seen) == ("filtered", "")
    found, why = verdict(message, evidence(expression="Paid", since_ms=STORED_MS + 1))
    assert (found, "may have had another filter" in why) == ("unknown", True)


def test_a_tag_with_the_same_hash_as_one_that_is_selected_is_filtered(message):
    """A broker returns "BB" to a member that wants "Aa", which compares the tags."""
    message.properties["TAGS"] = "BB"
    seen = evidence(expression="Aa", committed=3)
    found = judge(message, seen, min_offset=0)
    assert found.verdict == "filtered"
    assert found.evidence == "tag BB is not selected by 'Aa'"
    assert judge(message, evidence(expression="Aa"), min_offset=0).verdict == "filtered"
    seen = evidence(expression="BB || C")
    assert judge(message, seen, min_offset=0).verdict == "consumed"


def test_an_acknowledgement_of_pop_for_the_sake_of_a_hash_is_no_consumption(message):
    """The proxy that compares the tag acknowledges it; that was called consumed."""
    message.properties["TAGS"] = "BB"
    delivery = PopDelivery(
        popped_ms=STORED_MS + 1_000,
        visible_ms=STORED_MS + 61_000,
        acked_ms=STORED_MS + 2_000,
        is_open=False,
    )
    pop = {"is_pop": True, "holder": None, "delivery": delivery}
    found = judge(message, evidence(expression="Aa", **pop), min_offset=0)
    assert found.verdict == "filtered"
    assert found.evidence == (
        "tag BB is not selected by 'Aa', whose hash is the same; handed out at"
        " 2027-01-15T08:00:01.000Z, acknowledged at 2027-01-15T08:00:02.000Z"
    )
    seen = evidence(expression="Aa", since_ms=STORED_MS + 1_000, **pop)
    assert verdict(message, seen)[0] == "filtered"
    seen = evidence(expression="Aa", since_ms=STORED_MS + 1_001, **pop)
    found, why = verdict(message, seen)
    assert found == "unknown"
    assert why.startswith("tag BB is not selected by 'Aa', but the members' subscr")
    seen.is_renewed = True
    found, why = verdict(message, seen)
    assert found == "unknown"
    assert why.startswith("tag BB is not selected by 'Aa', but gRPC members renew")
    # "Other" has another hash: the members had another filter when they received it.
    for selected in ("BB", "Other"):
        seen = evidence(expression=selected, **pop)
        assert verdict(message, seen) == ("consumed", "")


def test_the_time_of_a_subscription_that_members_renew_says_nothing(message):
    """The reason said that it was newer than the message, as it always is."""
    seen = evidence(expression="Paid", since_ms=STORED_MS + 1, is_renewed=True)
    found, why = verdict(message, seen)
    assert found == "unknown"
    assert why.startswith("tag New is not selected by 'Paid', but gRPC members renew")


def test_what_is_not_committed_waits_or_is_held(message):
    seen = evidence(committed=3, pulled=5)
    found = judge(message, seen, min_offset=0)
    assert (found.verdict.value, found.waiting_before) == ("waiting", 2)
    assert verdict(message, evidence(committed=3, pulled=6))[0] == "in_flight"
    assert seen.holder is not None
    seen.holder = replace(seen.holder, unfinished=(3, 5))
    assert verdict(message, seen)[0] == "in_flight"
    # A broker before 5.1.0 does not tell, and the member does.
    seen = evidence(committed=3, pulled=None)
    assert verdict(message, seen)[0] == "waiting"
    seen.holder = None
    assert "(brokers do from RocketMQ 5.1.0 on)" in verdict(message, seen)[1]


def test_what_was_deleted_before_the_group_came_to_it_is_unknown(message):
    found, why = verdict(message, evidence(committed=3), min_offset=6)
    assert (found, why) == ("unknown", "the queue begins at 6: deleted, perhaps unread")


def test_orderly_pop_may_have_handed_out_what_is_near_its_offset(message):
    seen = evidence(committed=3, is_pop=True, is_orderly=True, holder=None)
    assert "orderly POP moves the offset when" in verdict(message, seen)[1]
    seen.committed = 6
    assert verdict(message, seen) == ("consumed", "")


def test_orderly_pop_may_have_handed_out_what_its_members_did_not_acknowledge(message):
    """It was said to wait, although a member that had left still held it."""
    seen = GroupEvidence(group="billing", committed=3, is_orderly=True)
    found, why = verdict(message, seen)
    assert found == "unknown"
    assert "orderly POP moves the offset when" in why
    seen.is_orderly = False
    assert verdict(message, seen)[0] == "waiting"


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (2, "it may be in the hands of a member"),
        (3, "its deliveries are used up: a proxy that receives it makes it a dead"),
    ],
)
def test_a_pop_retry_beyond_the_last_delivery_does_not_come(message, failed, reason):
    """A proxy forwards it with the next receive; the reason said nothing of that."""
    message.reconsume_times = failed
    retry = MessageCopy(kind="retry", message=message, is_pop=True, is_passed=False)
    seen = evidence(is_pop=True, copies=[retry], retry_max_times=2)
    found = judge(message, seen, min_offset=0)
    assert (found.verdict, found.attempt, found.attempts_max) == (
        "in_retry",
        failed + 1,
        3,
    )
    assert (found.reason or "").startswith(reason)


def test_a_message_that_the_member_is_past_does_not_wait(message):
    """Members commit every few seconds."""
    seen = evidence(committed=5, pulled=None)
    assert judge(message, seen, min_offset=0).verdict == "waiting"
    assert seen.holder is not None
    seen.holder = replace(seen.holder, committed=6)
    found = judge(message, seen, min_offset=0)
    assert (found.verdict, found.reason) == (
        "in_flight",
        "its member is past it, and has not committed that yet",
    )
    assert "; c1 is at 6" in str(found.evidence)


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ({"dying": {}}, ("dead", "it is in the dead-letter topic only when that has")),
        (
            {"dying": {"is_over": True}},
            ("dead", "the letter was not found in the dead-letter topic: it was del"),
        ),
        (
            {"dying": {"is_over": True}, "dead": {}},
            (
                "dead",
                "a delivery since then, as after a reset back over it, would have",
            ),
        ),
        ({"delay": {}}, ("in_retry", "")),
        (
            {"delay": {"is_over": True}},
            ("unknown", "the copy for delivery 1 was not found in the retry topic: it"),
        ),
    ],
)
def test_a_copy_whose_delay_has_ended_does_not_wait(message, kinds, found):
    copies = [
        MessageCopy(kind=kind, message=message, **more) for kind, more in kinds.items()
    ]
    name, reason = verdict(message, evidence(copies=copies))
    assert (name, reason[: len(found[1])]) == found


def test_what_pop_may_have_handed_out_does_not_wait(message):
    """A group of POP without members: with RocksDB, only the pulled offset shows it."""
    why = "what POP has handed out is not known: its broker keeps that in RocksDB"
    seen = evidence(committed=5, no_deliveries=why, holder=None)
    seen = replace(seen, connection=None)

    assert verdict(message, seen) == ("unknown", why)
    assert verdict(message, replace(seen, pulled=5)) == ("waiting", "")
    assert verdict(message, replace(seen, no_deliveries=None)) == ("waiting", "")
