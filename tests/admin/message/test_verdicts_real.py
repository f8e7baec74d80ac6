"""The table of verdicts on real brokers, each beside what a real group then receives.

All states of a version are prepared on one cluster, then all verdicts are asked for,
and then a consumer of each group runs until it has received a message that was sent
after the question: whatever it was not given before that, it never gets.
"""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    LocalTransactionState,
    MessageModel,
    Producer,
    ProducerMessage,
    SimpleConsumer,
    sql,
)
from rmqcli.admin.message.verdict import BEGINNING_MS
from rmqcli.api.calls.offset import query_consumer_offset, update_consumer_offset
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import BusyError, ExitCode
from rmqcli.model import MessageQueue
from tests.admin.dlq.letters import client_of, kill
from tests.admin.message import verdicts
from tests.admin.message.verdicts import COMES, HELD, NEVER
from tests.conftest import start_cluster
from tests.kit.proxy.real import RealProxy
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java

STATES = LocalTransactionState
#: Delays that are not over before the verdicts are read: 30 s, and as much.
LONG_LEVEL, LONG_MS = 4, 30_000
#: The priority of messages that have one, and so the number of their queue.
PRIORITY = 2
#: A proxy allows no shorter invisible time than ten seconds.
SHORT_MS = 10_000


def test_the_table_has_200_cases():
    assert verdicts.cases() >= 200


class Case:
    """A row on a cluster: its topic, its groups and its message.

    The topic has one queue on each broker, or one for each priority.
    """

    def __init__(self, table, row, way="pull"):
        self.table, self.row, self.way = table, row, way
        number = uuid.uuid4().hex[:10]
        kind = {}
        if row.has_priority:
            kind = {"queues": 4, "attributes": "+message.type=PRIORITY"}
        self.topic = table.cluster.create_topic(f"t-{number}", **{"queues": 1, **kind})
        self.queue_id = PRIORITY if row.has_priority else 0
        self.group, self.other = f"g-{number}", f"o-{number}"
        order = {"consume_message_orderly": True} if row.is_ordered else {}
        table.admin.create_group(self.group, **order)
        table.admin.create_group(self.other)
        self.commit(self.other, 0)
        self.sent: Any = None
        #: bodies that the group received, in the order of their arrival
        self.seen = []
        self.consumer: Any = None
        #: what the group had received when its verdict was asked for
        self.before = 0
        self.released = threading.Event()

    def __repr__(self):
        order = " in order" if self.row.is_ordered else ""
        return f"{self.table.cluster.version} {self.way}{order}: {self.row.state}"

    def send(self, body="m", **fields):
        if self.row.has_priority:
            priority = {"_SYS_MSG_PRIORITY_": str(PRIORITY)}
            fields["properties"] = fields.get("properties", {}) | priority
        message = ProducerMessage(self.topic, body.encode(), **fields)
        queue = MessageQueue(self.topic, self.table.broker_name, self.queue_id)
        return self.table.producer.send(message, queue=queue)

    def transact(self, state):
        message = ProducerMessage(self.topic, b"m")
        self.sent = self.table.producer.send_in_transaction(message, lambda *_: state)

    def commit(self, group, offset, *, broker=None):
        call = update_consumer_offset(
            group, self.topic, self.queue_id, commit_offset=offset
        )
        self.table.ask(call, broker=broker)

    def committed(self):
        return self.table.ask(
            query_consumer_offset(self.group, self.topic, self.queue_id)
        )

    def join_other(self):
        """Start a member of the second group; return what it gets, as it comes."""
        seen: list[bytes] = []
        consumer = Consumer(
            self.other,
            self.topic,
            lambda message: seen.append(message.body),
            consume_from="earliest",
            namesrv=self.table.cluster.namesrv,
        )
        consumer.start()
        self.table.stack.callback(consumer.close)
        return seen

    def join(self, topics=None, *, listener=None, begin="earliest", **more):
        """Start a member that notes what it gets."""

        def listen(message):
            self.seen.append(message.body.decode())
            if listener is not None:
                listener(message)

        self.consumer = Consumer(
            self.group,
            topics or self.topic,
            listen,
            consume_from=begin,
            namesrv=self.table.cluster.namesrv,
            config=ConsumerConfig(persist_consumer_offset_interval_ms=200, **more),
        )
        self.consumer.start()
        self.table.stack.callback(self.consumer.close)
        self.table.stack.callback(self.released.set)

    def leave(self):
        self.consumer.close()
        self.consumer = None

    def simple(self, invisible_ms, topics=None):
        config = ClientConfig(namesrv=(self.table.cluster.namesrv,))
        if self.way != "remoting":
            endpoints = self.table.endpoints[self.way]
            config = ClientConfig(endpoints=(endpoints,), plaintext=True)
        return SimpleConsumer(
            self.group,
            topics or self.topic,
            client=config,
            consume_from="earliest" if self.way == "remoting" else "latest",
            invisible_duration_ms=invisible_ms,
            # Through a proxy, the group's setting counts.
            orderly=self.row.is_ordered and self.way == "remoting",
        )

    @staticmethod
    def got(consumer, count=1, await_ms=1_000):
        """Receive once; nothing from a broker that is too busy to answer."""
        try:
            return consumer.receive(count, await_ms=await_ms)
        except BusyError:
            return []

    def receive(self, invisible_ms, *, acks=False):
        """Receive the message with a member that then leaves.

        First it is known as one: a heartbeat on its way could overtake its farewell.
        """
        with self.simple(invisible_ms) as consumer:
            self.take(consumer, acks=acks)
            wait_until(self.subscribed_ms, str(self))

    def take(self, consumer, *, acks, body="m"):
        found = wait_until(lambda: self.got(consumer, await_ms=5_000), str(self))
        assert [each.body.decode() for each in found] == [body]
        if acks:
            consumer.ack(found)

    def stay(self, invisible_ms, topics=None):
        """Start a member that receives, and wait until it is known as one."""
        consumer = self.simple(invisible_ms, topics)
        consumer.start()
        self.table.stack.callback(consumer.close)
        self.got(consumer)
        wait_until(self.subscribed_ms, str(self))
        return consumer

    def subscribed_ms(self):
        """The time of its members' subscription, None without members."""
        with self.table.one_request:
            group = self.table.admin.group(self.group)
        times = [e.sub_version for e in group.subscriptions if e.topic == self.topic]
        return times[0] if times and group.members else None

    def verdicts(self):
        """What `message show` says of both groups."""
        groups = ["-g", self.group, "-g", self.other]
        code, text, err = self.table.run(
            "message", "show", self.sent.msg_id, "-t", self.topic, *groups
        )
        assert code == self.table.exit_code, f"{self}: {err}"
        ((own, other),) = [row["groups"] for row in json.loads(text)]
        return own, other

    # --- what consumers see afterwards ---

    def start_again(self):
        """Start what reads on for the group, if no member does."""
        self.before = len(self.seen)
        self.released.set()
        if self.way != "pull":
            return
        if self.consumer is None and self.row.state != "broadcast":
            self.join()

    def drain(self):
        """Receive until a message has come that was sent after the question."""
        if self.way == "pull":
            return
        with self.simple(60_000) as consumer:

            def is_done():
                messages = self.got(consumer, 32, await_ms=5_000)
                consumer.ack(messages)
                self.seen += [each.body.decode() for each in messages]
                return self.is_done()

            wait_until(is_done, str(self))

    def is_done(self):
        after = self.seen[self.before :]
        return "last" in after and (self.row.then != COMES or "m" in after)

    def fault(self):
        """What consumers saw that contradicts the row, or None."""
        before, after = self.seen[: self.before], self.seen[self.before :]
        is_right = {
            COMES: "m" in after,
            NEVER: "m" not in after,
            HELD: "m" in before,
        }
        if is_right[self.row.then]:
            return None
        return f"{self}: {self.row.then}, and it came {before}, then {after}"


class Table:
    """The cases of one version, on one cluster, with the messages on its last broker.

    `exit_code` is that of `message show`.
    """

    def __init__(self, cluster, stack, capsys, endpoints=None):
        self.cluster, self.endpoints = cluster, endpoints
        self.stack, self.capsys = stack, capsys
        self.broker, self.exit_code = cluster.broker_count - 1, 0
        self.broker_name = cluster.broker_name(self.broker)
        self.one_command, self.one_request = threading.Lock(), threading.Lock()
        self.admin = stack.enter_context(Admin(namesrv=cluster.namesrv))
        self.client = stack.enter_context(client_of(cluster, timeout_ms=30_000))
        self.producer = stack.enter_context(
            Producer(
                f"p-{uuid.uuid4().hex[:8]}",
                namesrv=cluster.namesrv,
                on_check=lambda _: STATES.UNKNOW,
            )
        )

    def ask(self, call, *, broker=None):
        broker = self.broker if broker is None else broker
        with self.one_request:
            return self.client.invoke(self.cluster.broker_address(broker), call)

    def run(self, *words):
        with self.one_command:
            self.capsys.readouterr()
            code = run([*words, "-n", self.cluster.namesrv, "-o", "json"])
            return code, *self.capsys.readouterr()


# --- the states: what is done in each before the question ---


def first_of_its_queue(case):
    case.commit(case.group, 0)
    case.sent = case.send()


def third_of_its_queue(case):
    case.commit(case.group, 0)
    case.send("x")
    case.send("x")
    case.sent = case.send()


def group_without_an_offset(case):
    case.sent = case.send()


def group_with_an_offset_on_the_other_broker_only(case):
    case.commit(case.group, 0, broker=0)
    case.sent = case.send()


def offset_moved_by_someone(case):
    case.sent = case.send()
    case.commit(case.group, 1)


def consumed_and_the_members_left(case):
    consumed(case)
    wait_until(lambda: case.committed() == 2, str(case))
    case.leave()


def reset_by_this_tool(case):
    case.commit(case.group, 0)
    case.sent = case.send()
    words = ["--to", "latest", "--execute", "--yes"]
    code, _, err = case.table.run("reset-offset", case.group, case.topic, *words)
    assert code == 0, err


def _consumed(case, topics=None, first=None, **fields):
    """Have a member consume what is sent after it is known to the broker."""
    case.join(topics)
    case.send("x", **(first or fields))
    wait_until(lambda: "x" in case.seen, str(case))
    case.sent = case.send(**fields)


def consumed(case):
    _consumed(case)
    wait_until(lambda: "m" in case.seen, str(case))


def consumed_with_its_tag(case):
    _consumed(case, {case.topic: "New || Old"}, tags="Old")
    wait_until(lambda: "m" in case.seen, str(case))


def another_tag(case):
    _consumed(case, {case.topic: "New"}, {"tags": "New"}, tags="Paid")
    wait_until(lambda: case.committed() == 2, str(case))


def no_tag(case):
    _consumed(case, {case.topic: "New"}, {"tags": "New"})
    wait_until(lambda: case.committed() == 2, str(case))


def selected_by_sql(case):
    few = {"properties": {"n": "6"}}
    _consumed(case, {case.topic: sql(case.topic, "n > 5")}, few, **few)
    wait_until(lambda: "m" in case.seen, str(case))


def not_selected_by_sql(case):
    topics = {case.topic: sql(case.topic, "n > 5")}
    _consumed(case, topics, {"properties": {"n": "6"}}, properties={"n": "4"})
    wait_until(lambda: case.committed() == 2, str(case))


def skipped_by_an_earlier_filter(case):
    another_tag(case)
    case.leave()
    case.join()


def older_than_a_group_that_begins_at_the_end(case):
    case.sent = case.send()
    case.commit(case.group, 1)
    case.join(begin="latest")


def in_a_listener(case):
    case.commit(case.group, 0)
    case.join(listener=lambda _: case.released.wait())
    case.sent = case.send()
    wait_until(lambda: "m" in case.seen, str(case))


def consumed_at_the_second_try(case):
    def listen(message):
        assert message.body != b"m" or message.reconsume_times > 0

    case.commit(case.group, 0)
    case.join(listener=listen)
    case.send("x")
    wait_until(lambda: "x" in case.seen, str(case))
    case.sent = case.send()


def broadcast(case):
    case.commit(case.group, 0)
    case.join(message_model=MessageModel.BROADCASTING)
    case.sent = case.send()
    wait_until(lambda: "m" in case.seen, str(case))


def _sent_back(case, level):
    case.commit(case.group, 1)
    kill(case.table.cluster, case.group, case.topic, [case.sent], delay_level=level)


def retry_that_is_due(case):
    case.sent = case.send()
    _sent_back(case, 1)


def retry_with_a_delay(case):
    case.sent = case.send()
    _sent_back(case, LONG_LEVEL)


def dead(case):
    case.sent = case.send()
    _sent_back(case, -1)


def dead_and_in_retry(case):
    """As after a dead letter was sent to the retry topic again."""
    retry_that_is_due(case)
    kill(case.table.cluster, case.group, case.topic, [case.sent])
    case.commit(case.group, 1)


def delay_level(case):
    case.commit(case.group, 0)
    case.sent = case.send(delay_level=LONG_LEVEL)


def delay_level_that_is_over(case):
    case.commit(case.group, 0)
    case.sent = case.send(delay_level=1)


def delivery_time(case):
    case.commit(case.group, 0)
    case.sent = case.send(delay_ms=LONG_MS)


def recalled(case):
    case.commit(case.group, 0)
    case.sent = case.send(delay_ms=LONG_MS)
    words = (case.sent.msg_id, "--topic", case.topic, "--yes")
    code, _, err = case.table.run("message", "recall", *words)
    assert code == 0, err


def half(case):
    case.commit(case.group, 0)
    case.transact(STATES.UNKNOW)


def rolled_back(case):
    case.commit(case.group, 0)
    case.transact(STATES.ROLLBACK_MESSAGE)


def committed(case):
    case.commit(case.group, 0)
    case.transact(STATES.COMMIT_MESSAGE)


def beside_a_group_that_consumes(case):
    case.commit(case.group, 0)
    seen = case.join_other()
    case.send("x")
    wait_until(lambda: seen == [b"x"], str(case))
    case.sent = case.send()
    wait_until(lambda: seen == [b"x", b"m"], str(case))


def consumed_beside_a_group_that_consumes(case):
    seen = case.join_other()
    consumed(case)
    wait_until(lambda: b"m" in seen, str(case))


def not_received(case):
    """The group has received the message before it."""
    case.sent = case.send()
    case.receive(SHORT_MS, acks=True)
    case.sent = case.send()


def received(case):
    case.sent = case.send()
    case.receive(LONG_MS)


def acknowledged(case):
    case.sent = case.send()
    case.receive(LONG_MS, acks=True)


def not_acknowledged(case):
    case.sent = case.send()
    case.receive(SHORT_MS)


def received_again(case):
    """After `not_acknowledged`."""
    case.receive(LONG_MS)


def acknowledged_again(case):
    not_acknowledged(case)
    case.receive(LONG_MS, acks=True)


def passed_over_by_its_tag(case):
    """And a proxy in cluster mode has told the member's filter once more."""
    case.commit(case.group, 0)
    consumer = case.stay(LONG_MS, {case.topic: "New"})
    subscribed_ms = case.subscribed_ms()
    case.sent = case.send(tags="Paid")
    wait_until(
        lambda: not case.got(consumer) and case.committed() == 1,
        str(case),
    )
    if case.way == "cluster":
        wait_until(lambda: case.subscribed_ms() > subscribed_ms, str(case))


def passed_over_by_a_member_that_left(case):
    case.commit(case.group, 0)
    case.sent = case.send(tags="Paid")
    with case.simple(LONG_MS, {case.topic: "New"}) as consumer:
        wait_until(
            lambda: not case.got(consumer) and case.committed() == 1,
            str(case),
        )
        wait_until(case.subscribed_ms, str(case))


def received_by_a_member(case):
    case.commit(case.group, 0)
    consumer = case.stay(LONG_MS)
    case.sent = case.send()
    case.take(consumer, acks=False)


def behind_one_that_is_received(case):
    case.commit(case.group, 0)
    consumer = case.stay(LONG_MS)
    case.send("x")
    case.take(consumer, acks=False, body="x")
    case.sent = case.send()


def acknowledged_by_a_member(case):
    case.commit(case.group, 0)
    consumer = case.stay(LONG_MS)
    case.sent = case.send()
    case.take(consumer, acks=True)


def acknowledged_by_a_member_of_long_standing(case):
    """A new group may begin behind what is sent in its first minute."""
    case.commit(case.group, 0)
    consumer = case.stay(LONG_MS)
    subscribed_ms = SYSTEM_CLOCK.epoch_ms()
    wait_until(lambda: SYSTEM_CLOCK.epoch_ms() > subscribed_ms + BEGINNING_MS)
    case.sent = case.send()
    case.take(consumer, acks=True)


def acknowledged_again_by_a_member(case):
    case.commit(case.group, 0)
    consumer = case.stay(SHORT_MS)
    case.sent = case.send()
    case.take(consumer, acks=False)
    case.take(consumer, acks=True)


#: States that end by themselves: their verdicts are asked for first.
SOON_OVER = (
    "delay level",
    "delivery time",
    "retry with a delay",
    "recalled",
    "received",
    "received again",
    "received by a member",
    "behind one that is received",
)


def prepare(case):
    name = case.row.state.replace(", ", " ").replace(" ", "_").lower()
    globals()[name](case)


def prepare_first(case):
    """Prepare what takes a while, or stays."""
    if case.row.state not in SOON_OVER:
        prepare(case)
    elif case.row.state == "received again":
        not_acknowledged(case)


def compare(case):
    """Compare the verdicts; states that need time are asked about until they agree."""
    row = case.row
    found: list[dict[str, Any]] = []

    def agrees():
        found[:] = case.verdicts()
        own, other = found
        return (own["verdict"], other["verdict"]) == (row.verdict, row.other)

    if row.state in SOON_OVER:
        agrees()
    else:  # members may be too busy to answer, and an index is a moment late
        wait_until(agrees, [case, found])
    own, other = found
    assert (own["verdict"], other["verdict"]) == (row.verdict, row.other), (
        f"{case}: {found}"
    )
    assert row.reason in (own["reason"] or ""), f"{case}: {own}"
    for name in ("attempt", "waiting_before"):
        wanted = getattr(row, name)
        assert wanted is None or own[name] == wanted, f"{case}: {own}"


@pytest.fixture
def table(rmq_version, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    is_real_5 = rmq_version in verdicts.V5
    options = {"proxy": True} if is_real_5 else {}
    conf = {"recallMessageEnable": "true"}
    with (
        start_cluster(rmq_version, tmp_path / "c", conf=conf, **options) as cluster,
        ExitStack() as stack,
    ):
        endpoints = {}
        if is_real_5:
            endpoints["local"] = cluster.endpoints
            endpoints["cluster"] = stack.enter_context(RealProxy(cluster)).endpoints
        yield Table(cluster, stack, capsys, endpoints)


def test_each_verdict_is_what_consumers_then_see(rmq_version, table):
    is_embedded = rmq_version not in verdicts.ALL
    version = "5.5.0" if is_embedded else rmq_version
    rows = [("pull", row) for row in verdicts.rows_of(version)]
    rows += [
        (way, row)
        for way, row in verdicts.popped_of(version)
        if not is_embedded or way == "remoting"
    ]
    cases = [Case(table, row, way) for way, row in rows]
    prepare_all(cases)
    compare_all(cases)
    check_what_consumers_see(cases)


@pytest.mark.rmq_versions(*verdicts.NIGHTLY)
def test_verdicts_on_a_broker_do_not_go_beyond_what_it_tells_while_another_is_down(
    rmq_version, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with (
        start_cluster(rmq_version, tmp_path / "c", brokers=2) as cluster,
        ExitStack() as stack,
    ):
        table = Table(cluster, stack, capsys)
        cases = [Case(table, row) for row in verdicts.ALONE]
        prepare_all(cases)
        for case in cases:
            case.verdicts()  # and the brokers are remembered
        cluster.kill_broker(0)
        table.exit_code = ExitCode.PARTIAL
        compare_all(cases)
        cluster.start_broker(0)
        check_what_consumers_see(cases)


def prepare_all(cases):
    soon = [case for case in cases if case.row.state in SOON_OVER]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(prepare_first, cases))
        list(pool.map(prepare, soon))


def compare_all(cases):
    for case in sorted(cases, key=lambda each: each.row.state not in SOON_OVER):
        compare(case)


def check_what_consumers_see(cases):
    for case in cases:
        case.start_again()
    for case in cases:
        case.send("last", tags="New", properties={"n": "6"})
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(Case.drain, cases))
    for case in cases:
        wait_until(case.is_done, str(case))
    assert [fault for case in cases if (fault := case.fault())] == []
