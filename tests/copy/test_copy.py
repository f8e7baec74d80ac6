"""A copy has all messages, in order, as their producer made them."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli import Admin, ClientConfig, Producer, ProducerConfig, ProducerMessage
from rmqcli.admin.reset.cluster_identity import ClusterIdentity
from rmqcli.admin.tail.where import parse_where
from rmqcli.api.calls.send import send_batch_message
from rmqcli.cli.main import run
from rmqcli.cli.schema_registry import read_decode
from rmqcli.copy.copy import BY_INDEX, BY_KEY
from rmqcli.copy.log import CopyIdentity, open_copy_log, read_copy_log
from rmqcli.errors import ConfigError, RefusedError
from rmqcli.position import AtOffset, AtTime, Latest, PlusN
from rmqcli.testing import Seed, faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.batch import encode_items
from tests.admin.dlq.letters import client_of
from tests.copy.copying import copied, prepared, stored
from tests.kit.wiped import wiped


@pytest.fixture
def log(tmp_path):
    return tmp_path / "copy.jsonl"


@pytest.fixture
def cluster(rmq_cluster):
    rmq_cluster.create_topic("src", queues=3)
    rmq_cluster.create_topic("dst", queues=3)
    return rmq_cluster


def bodies(count, start=0):
    return [f"{number:03}".encode() for number in range(start, start + count)]


def test_each_queue_is_copied_to_the_one_with_its_index(cluster, log):
    cluster.send("src", bodies(50))
    report = copied(cluster, cluster, log)
    assert (report.copied, report.scanned, report.is_complete) == (50, 50, True)
    assert stored(cluster, "dst") == stored(cluster, "src")


def test_a_long_copy_keeps_one_run_for_each_queue(cluster, log):
    cluster.send("src", bodies(90))
    with prepared(cluster, cluster, log, batch_max=9) as run:
        assert sum(1 for _ in run.batches()) == 10
        kept = [
            (each.queue_id, each.offsets, each.target_queue, each.target_offset)
            for each in run.log.state.runs
        ]
    assert sorted(kept) == [
        (0, range(30), 0, 0),
        (1, range(30), 1, 0),
        (2, range(30), 2, 0),
    ]
    with prepared(cluster, cluster, log) as again:  # from the log
        assert len(again.log.state.runs) == 3
        assert again.log.state.copied == 90


def test_a_second_run_copies_only_what_is_new(cluster, log):
    cluster.send("src", bodies(10))
    copied(cluster, cluster, log)
    assert copied(cluster, cluster, log).copied == 0
    cluster.send("src", bodies(5, start=10))
    assert copied(cluster, cluster, log).copied == 5
    assert stored(cluster, "dst") == stored(cluster, "src")


def test_other_clusters_with_more_brokers_get_queues_by_index(rmq_cluster_factory, log):
    source, target = rmq_cluster_factory(brokers=2), rmq_cluster_factory()
    source.create_topic("src", queues=2)
    target.create_topic("dst", queues=4)
    source.send("src", bodies(40))
    assert copied(source, target, log).copied == 40
    found = stored(target, "dst")
    expected = stored(source, "src")
    assert [found["broker-a", n] for n in range(4)] == [
        expected[key] for key in sorted(expected)
    ]


def test_with_another_number_of_queues_message_groups_stay_together(
    rmq_cluster_factory, log
):
    """What a proxy sent to a group later came to another queue than the copies."""
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("src", queues=3, attributes={"message.type": "FIFO"})
    cluster.create_topic("few", queues=2, attributes={"message.type": "FIFO"})
    by_proxy = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)

    def send(topic, numbers):
        with Producer(client=by_proxy) as producer:
            for number in numbers:
                for group in ("a", "group-1"):
                    body = f"{group} {number}".encode()
                    producer.send(ProducerMessage(topic, body, message_group=group))

    send("src", range(3))
    copied(cluster, cluster, log, topics=("src", "few"))
    send("few", range(3, 5))
    assert stored(cluster, "few") == {
        ("broker-a", 0): [b"a 0", b"a 1", b"a 2", b"a 3", b"a 4"],
        ("broker-a", 1): [b"group-1 %d" % number for number in range(5)],
    }


def test_with_another_number_of_queues_a_priority_decides(cluster, log):
    """The messages of one priority came to the queue of another one."""
    cluster.create_topic("urgent", queues=4)
    cluster.create_topic("few", queues=3)
    cluster.create_topic("many", queues=6)
    with Producer(namesrv=cluster.namesrv) as producer:
        for number in range(8):
            priority = {"_SYS_MSG_PRIORITY_": str(number % 4)}
            body = b"%d" % (number % 4)
            producer.send(ProducerMessage("urgent", body, properties=priority))
    for target in ("few", "many"):
        copied(cluster, cluster, log.with_name(target), topics=("urgent", target))
    assert stored(cluster, "few") == {
        ("broker-a", 0): [b"0", b"0"],
        ("broker-a", 1): [b"1", b"1"],
        ("broker-a", 2): [b"2", b"2", b"3", b"3"],
    }
    assert stored(cluster, "many") == {
        ("broker-a", number): [b"%d" % number] * 2 for number in range(4)
    }


def test_with_another_number_of_queues_the_messages_of_a_queue_stay_together(
    cluster, log
):
    cluster.create_topic("few", queues=2)
    cluster.send("src", bodies(30))
    copied(cluster, cluster, log, topics=("src", "few"))
    found = stored(cluster, "few")
    for each in stored(cluster, "src").values():
        (to,) = [b for b in found.values() if set(each) <= set(b)]
        assert [body for body in to if body in each] == each


def test_a_copy_has_what_the_producer_gave_and_nothing_else(cluster, log):
    message = ProducerMessage(
        "src", b"body", tags="T", keys=["a", "b"], properties={"p": "v"}, flag=7
    )
    with Producer(namesrv=cluster.namesrv) as producer:
        sent = producer.send(message)
    copied(cluster, cluster, log)
    with Admin(namesrv=cluster.namesrv) as admin:
        (found,) = admin.read("dst", to="latest")
        (source,) = admin.read("src", to="latest")
    assert (found.body, found.tags, found.keys, found.flag) == (b"body", "T", "a b", 7)
    assert found.properties["p"] == "v"
    assert source.msg_id == sent.msg_id != found.msg_id
    # The broker adds what it adds to every message.
    assert set(found.properties) <= set(source.properties)


def test_keys_are_copied_as_they_are(cluster, log):
    """Several spaces became one, and a key with a wide space became two keys."""
    keys = ["a  b", "订单\u30001"]
    cluster.send("src", [Seed(body=b"x", properties={"KEYS": each}) for each in keys])
    assert copied(cluster, cluster, log).is_complete
    with Admin(namesrv=cluster.namesrv) as admin:
        assert sorted(str(each.keys) for each in admin.read("dst", to="latest")) == keys


def test_a_body_that_is_large_when_it_is_inflated_is_copied(cluster, log):
    """The copy ended there, in this run and in each later one."""
    config = ProducerConfig(max_message_size_bytes=16 << 20)
    with Producer(namesrv=cluster.namesrv, config=config) as producer:
        producer.send(ProducerMessage("src", b"x" * 5_000_000))
    assert copied(cluster, cluster, log).copied == 1
    assert stored(cluster, "dst") == stored(cluster, "src")


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        (
            b"p\x01" + b"v" * 32_500,
            "properties of 32503 bytes are larger than the limit",
        ),
        (b"p\x01\xff\x02", "its properties are not valid UTF-8"),
    ],
)
def test_properties_that_cannot_be_sent_are_named_and_the_others_are_copied(
    cluster, log, properties, why
):
    cluster.create_topic("one", queues=1)
    cluster.create_topic("other", queues=1)
    items = [(b"a", b"p\x01v", 0), (b"b", properties, 0), (b"c", b"", 0)]
    header = SendMessageRequestHeaderV2(
        producer_group="g", topic="one", queue_id=0, batch=True, born_timestamp=1,
        flag=0, sys_flag=0, default_topic="TBW102", default_topic_queue_nums=4,
    )  # fmt: skip
    with client_of(cluster) as client:
        call = send_batch_message(header, encode_items(items))
        client.invoke(cluster.broker().address, call)
    report = copied(cluster, cluster, log, topics=("one", "other"))
    assert stored(cluster, "other") == {("broker-a", 0): [b"a", b"c"]}
    assert report.given_up is None
    ((reason, named),) = report.named.items()
    assert reason.startswith(why)
    assert named == ["broker-a:0:1"]


def test_copies_of_a_lite_topic_can_be_consumed_by_it(cluster, log):
    """Of a batch a broker does not note the lite topics."""
    lite = ProducerMessage("src", b"x", properties={"__LITE_TOPIC": "a"})
    with Producer(namesrv=cluster.namesrv) as producer:
        for _ in range(5):
            producer.send(lite)
    assert copied(cluster, cluster, log).copied == 5
    with Admin(namesrv=cluster.namesrv) as admin:
        found = [m.properties["INNER_MULTI_DISPATCH"] for m in admin.read("dst")]
    assert found == ["%LMQ%$dst$a"] * 5
    assert stored(cluster, "dst") == stored(cluster, "src")


def test_the_copy_of_a_delayed_message_is_an_ordinary_one(cluster, log):
    with Producer(namesrv=cluster.namesrv) as producer:
        producer.send(ProducerMessage("src", b"later", delay_level=1))
    with Admin(namesrv=cluster.namesrv) as admin:
        from tests.kit.waiting import wait_until

        wait_until(lambda: list(admin.read("src", to="latest")))
        copied(cluster, cluster, log)
        (found,) = admin.read("dst", to="latest")
    assert found.body == b"later"
    assert not {"DELAY", "REAL_TOPIC", "REAL_QID"} & set(found.properties)


def test_empty_and_large_bodies_are_copied(cluster, log):
    with Producer(namesrv=cluster.namesrv) as producer:
        for body in (b"", b"x" * 300_000, b"", b"y" * 3_000_000):
            # Brokers take an empty body only in a batch.
            producer.send_batch([ProducerMessage("src", body)])
    assert copied(cluster, cluster, log, batch_max=3).copied == 4
    assert stored(cluster, "dst") == stored(cluster, "src")


def test_a_filter_chooses_messages(cluster, log):
    with Producer(namesrv=cluster.namesrv) as producer:
        for number in range(20):
            tag = "even" if number % 2 == 0 else "odd"
            producer.send(ProducerMessage("src", b"%d" % number, tags=tag))
    report = copied(cluster, cluster, log, tag="even")
    assert report.copied == 10
    found = [body for each in stored(cluster, "dst").values() for body in each]
    assert sorted(map(int, found)) == list(range(0, 20, 2))
    assert copied(cluster, cluster, log, tag="even").scanned == 0
    with pytest.raises(RefusedError, match="chose messages by"):
        copied(cluster, cluster, log, tag="odd")


def test_a_message_that_a_condition_cannot_judge_is_named_and_not_copied(cluster, log):
    cluster.send("src", [b'{"a": 1}', b"no JSON", b'{"a": 2}'])
    where = parse_where("value.a > 1", decode=read_decode("json"))
    report = copied(cluster, cluster, log, where=where)
    assert report.copied == 1
    assert report.left_out == {"its body could not be decoded for the condition": 1}
    ((why, named),) = report.named.items()
    assert (why, len(named)) == ("its body could not be decoded for the condition", 1)
    assert not report.is_complete


def test_a_copy_that_reads_bodies_in_another_format_does_not_go_on(cluster, log):
    """The same condition chose other messages, and the log did not tell."""
    cluster.send("src", [b'{"a": 2}'])
    where = parse_where("value.a > 1", decode=read_decode("json"))
    assert copied(cluster, cluster, log, where=where).copied == 1
    where = parse_where("value.a > 1", decode=read_decode("msgpack"))
    said = "by --where value.a > 1, --decode json, this one by"
    with pytest.raises(RefusedError, match=said):
        copied(cluster, cluster, log, where=where)


def test_a_refused_request_stops_the_copy_and_keeps_the_order(cluster, log):
    cluster.send("src", bodies(90))
    cluster.faults.add(
        faults.answer(1, "disk is full"), code=RequestCode.SEND_BATCH_MESSAGE, times=1
    )
    report = copied(cluster, cluster, log, batch_max=30)
    assert report.given_up is not None
    assert report.copied < 90
    assert report.unknown == []
    assert copied(cluster, cluster, log).is_complete
    assert stored(cluster, "dst") == stored(cluster, "src")


def test_a_message_that_is_too_large_for_the_target_is_named(rmq_cluster_factory, log):
    """Requests with several messages were too large as well, and nothing was copied."""
    source = rmq_cluster_factory()
    target = rmq_cluster_factory(settings={"max_message_size": 100_000})
    source.create_topic("src", queues=1)
    target.create_topic("dst", queues=1)
    sent = [b"%d" % number * 30_000 for number in range(7)]
    source.send("src", [*sent, b"x" * 150_000, b"behind it"])
    for _ in range(2):
        report = copied(source, target, log)
        assert stored(target, "dst") == {("broker-a", 0): sent}
        assert report.given_up is not None
        assert report.given_up.message == (
            "broker-a:0:7: the body has 150,000 bytes; the limit of the broker is"
            " 100,000"
        )


@pytest.mark.parametrize("code", [2, 17])
def test_a_broker_that_is_busy_or_does_not_know_the_topic_yet_is_waited_for(
    cluster, log, code
):
    """As brokers are for a moment after a restart."""
    cluster.send("src", bodies(9))
    cluster.faults.add(
        faults.answer(code, "no"), code=RequestCode.SEND_BATCH_MESSAGE, times=2
    )
    report = copied(cluster, cluster, log, retry_for_ms=60_000)
    assert (report.given_up, report.copied) == (None, 9)
    assert stored(cluster, "dst") == stored(cluster, "src")


def test_messages_without_an_answer_are_named_and_sent_again(cluster, log):
    topics = "one", "other"
    for topic in topics:
        cluster.create_topic(topic, queues=1)
    cluster.send("one", bodies(9))
    cluster.faults.add(
        faults.disconnect(is_handled=True),
        code=RequestCode.SEND_BATCH_MESSAGE,
        times=1,
    )
    report = copied(cluster, cluster, log, topics=topics, batch_max=5)
    assert [str(span) for span in report.unknown] == ["broker-a:0:0-4"]
    assert report.copied == 0
    assert copied(cluster, cluster, log, topics=topics).is_complete
    found = stored(cluster, "other")
    assert found == {("broker-a", 0): bodies(5) + bodies(9)}


def test_two_copies_at_once_are_refused(cluster, log):
    from rmqcli.admin.dlq.log import LockedFile

    file = LockedFile(log)
    try:
        with pytest.raises(RefusedError, match="another copy is running"):
            copied(cluster, cluster, log)
    finally:
        file.close()


def test_a_copy_at_the_same_time_with_another_log_is_noticed(cluster, log, tmp_path):
    """Each of them stored all messages, and neither of them said a word."""
    cluster.send("src", bodies(30))
    with prepared(cluster, cluster, log, batch_max=9) as first:
        batches = first.batches()
        stored_first = next(batches)
        with prepared(cluster, cluster, tmp_path / "other") as second:
            for _ in second.batches():
                pass
        for _ in batches:
            pass
    assert (first.plan.present, second.plan.present) == (0, stored_first)
    # Of the queue in which its copies are on both sides of them.
    assert (first.report.others, second.report.others) == (10, 0)
    assert first.report.copied == second.report.copied == 30
    with prepared(cluster, cluster, log) as again:
        assert again.plan.present is None


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(cluster, log):
    cluster.send("src", bodies(9))
    copied(cluster, cluster, log)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic("src")
        cluster.create_topic("src", queues=3)
    with pytest.raises(RefusedError, match="deleted and created again"):
        copied(cluster, cluster, log)


def test_another_number_of_queues_is_refused_with_the_same_log(cluster, log):
    cluster.send("src", bodies(9))
    copied(cluster, cluster, log)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.update_topic("dst", queue_nums=5)
    with pytest.raises(
        RefusedError,
        match=r"the queues of topic dst are not those .*broker-a:3, broker-a:4",
    ):
        copied(cluster, cluster, log)


def test_queues_that_were_added_to_both_topics_are_copied_from_their_beginning(
    cluster, log
):
    """Another log copied what was copied already a second time, without a word."""
    cluster.send("src", bodies(9))
    copied(cluster, cluster, log)
    cluster.create_topic("src", queues=5)
    cluster.send("src", bodies(10, start=9))
    with pytest.raises(RefusedError, match="broker-a:3, broker-a:4") as caught:
        copied(cluster, cluster, log)
    assert caught.value.hint == (
        "add as many queues to topic dst, and the copy goes on; another file for the"
        " log begins anew, and copies what is copied already once more"
    )
    cluster.create_topic("dst", queues=5)
    report = copied(cluster, cluster, log, start=Latest())
    assert (report.copied, report.is_complete) == (10, True)
    assert stored(cluster, "dst") == stored(cluster, "src")
    cluster.send("src", bodies(3, start=19))
    assert copied(cluster, cluster, log).copied == 3


def test_messages_before_the_time_of_the_start_are_not_copied_of_an_added_queue(
    cluster, log
):
    start = AtTime(4_102_444_800_000, "2100-01-01T00:00:00Z")
    topics = "src", "few"
    cluster.create_topic("few", queues=2)
    assert copied(cluster, cluster, log, topics=topics, start=start).copied == 0
    cluster.create_topic("src", queues=4)
    cluster.send("src", bodies(3), queue_id=3)
    assert copied(cluster, cluster, log, topics=topics, start=start).copied == 0


def test_queues_that_were_added_go_on_where_keys_decide(cluster, log):
    cluster.create_topic("few", queues=2)
    cluster.send("src", bodies(9))
    copied(cluster, cluster, log, topics=("src", "few"))
    cluster.create_topic("src", queues=5)
    cluster.send("src", bodies(10, start=9))
    assert copied(cluster, cluster, log, topics=("src", "few")).copied == 10
    assert sorted(chain(*stored(cluster, "few").values())) == bodies(19)


def test_queues_are_not_added_where_others_would_change_their_places(
    rmq_cluster_factory, log
):
    """Before the queue of broker-b comes a new one of broker-a, by which it moves."""
    source, target = rmq_cluster_factory(brokers=2), rmq_cluster_factory()
    source.create_topic("src", queues=1)
    target.create_topic("dst", queues=2)
    source.send("src", bodies(4))
    copied(source, target, log)
    with Admin(namesrv=source.namesrv) as admin:
        admin.update_topic("src", queue_nums=2)
    target.create_topic("dst", queues=4)
    with pytest.raises(RefusedError, match="and out of order") as caught:
        copied(source, target, log)
    assert caught.value.hint == (
        "another file for the log begins anew, and copies what is copied already once"
        " more"
    )


def test_a_queue_goes_on_where_the_first_run_would_have_begun(cluster, log):
    """What came between the runs was left out: each run began at its own end."""
    cluster.send("src", bodies(3))
    assert copied(cluster, cluster, log, start=Latest()).copied == 0
    cluster.send("src", bodies(6, start=3))
    assert copied(cluster, cluster, log, start=Latest()).copied == 6
    assert sorted(chain(*stored(cluster, "dst").values())) == bodies(6, start=3)


@pytest.mark.parametrize("start", [AtOffset(5), PlusN(5)])
def test_a_queue_that_ends_before_the_start_is_copied_from_there_later(
    cluster, log, start
):
    cluster.create_topic("one", queues=1)
    cluster.create_topic("other", queues=1)
    topics = "one", "other"
    cluster.send("one", bodies(3))
    assert copied(cluster, cluster, log, topics=topics, start=start).copied == 0
    cluster.send("one", bodies(4, start=3))
    assert copied(cluster, cluster, log, topics=topics, start=start).copied == 2
    assert stored(cluster, "other") == {("broker-a", 0): [b"005", b"006"]}


def test_a_copy_that_follows_a_shorter_queue_waits_for_the_start(cluster, log):
    """It began at the end that the queue had at first."""
    cluster.send("src", bodies(3), queue_id=1)
    with prepared(cluster, cluster, log, start=AtOffset(5)) as run:
        batches = run.batches(follow=True)
        assert next(batches) == 0
        cluster.send("src", bodies(4, start=3), queue_id=1)
        assert next(batches) == 2
    assert stored(cluster, "dst") == {("broker-a", 1): [b"005", b"006"]}


def test_a_source_without_copies_that_was_wiped_is_recognized(rmq_cluster_factory, log):
    source, target = rmq_cluster_factory(), rmq_cluster_factory()
    source.create_topic("src", queues=1)
    target.create_topic("dst", queues=1)
    source.send("src", bodies(3))
    assert copied(source, target, log, start=Latest()).copied == 0
    source = wiped(source, rmq_cluster_factory)
    source.create_topic("src", queues=1)
    source.send("src", bodies(5))
    with pytest.raises(RefusedError, match="another message at offset 2 than the log"):
        copied(source, target, log, start=Latest())


@pytest.mark.parametrize(
    "text", ["x\n", "{}\n", '{"version":2}\n', "[1]\n", "\x00\n", '{"version":3}\n']
)
def test_a_file_that_is_no_log_is_refused(cluster, log, text):
    log.write_text(text)
    with pytest.raises(ConfigError, match="is not a log of a copy"):
        copied(cluster, cluster, log)


def test_a_file_without_a_line_that_is_no_log_keeps_its_content(cluster, log):
    """A file that was named by mistake was emptied if it had no end of a line."""
    log.write_text('{"precious": 1}')
    with pytest.raises(ConfigError, match="is not a log of a copy"):
        copied(cluster, cluster, log)
    assert log.read_text() == '{"precious": 1}'


def test_a_first_line_that_a_kill_has_cut_is_written_again(cluster, log):
    log.write_text('{"version":2,"source_to')
    cluster.send("src", bodies(10))
    assert copied(cluster, cluster, log).copied == 10


@given(st.binary(max_size=300), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_log_or_an_error(tmp_path, data, has_head):
    identity = CopyIdentity(
        source_topic="s",
        source=ClusterIdentity(("c",), {"b": ("h:1",)}),
        target_topic="t",
        target=ClusterIdentity(("c",), {"b": ("h:1",)}),
        queues=("b:0",),
        targets=("b:0",),
    )
    path = tmp_path / "any"
    path.unlink(missing_ok=True)
    if has_head:
        open_copy_log(path, identity, at_ms=0).close()
    with path.open("ab") as file:
        file.write(data)
    with suppress(ConfigError, RefusedError):
        state, length = read_copy_log(path, identity)
        assert length <= path.stat().st_size
        assert state.copied == 0


@pytest.mark.parametrize("hidden", [["broker-b"], ["broker-a", "broker-b"]])
def test_a_topic_that_cannot_be_read_is_refused(rmq_cluster_factory, log, hidden):
    """Its messages, as those of a write-only topic of dead letters, were left out."""
    cluster = rmq_cluster_factory(brokers=2)
    for topic in ("src", "dst"):
        cluster.create_topic(topic, queues=2)
    cluster.send("src", bodies(8))
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.update_topic("src", perm=2, brokers=hidden)
    with pytest.raises(RefusedError) as caught:
        copied(cluster, cluster, log)
    assert caught.value.message == (
        f"topic src is not readable on {', '.join(hidden)}: its messages there would be"
        " left out"
    )
    assert str(caught.value.hint) == (
        f"make it readable: Admin.update_topic('src') perm=6, brokers={hidden}"
    )
    assert stored(cluster, "dst") == {}


def test_a_topic_is_not_copied_to_itself(cluster, log):
    with pytest.raises(RefusedError, match="would be copied to itself"):
        copied(cluster, cluster, log, topics=("src", "src"))


def test_the_names_of_mappings_are_those_of_the_log():
    assert (BY_INDEX, BY_KEY) == ("index", "key")


def test_queues_that_are_added_while_a_copy_follows_are_named(cluster, log):
    """Their messages were left out without a word."""
    cluster.send("src", bodies(6))
    with prepared(cluster, cluster, log) as run:
        batches = run.batches(follow=True)
        assert (next(batches), next(batches)) == (6, 0)
        assert run.report.is_complete
        cluster.create_topic("src", queues=4)
        cluster.send("src", [b"to the new one"], queue_id=3)
        assert next(batches) == 0
        assert [str(each) for each in run.report.added] == ["src@broker-a:3"]
        assert not run.report.is_complete


def test_a_copy_follows_while_no_name_server_knows_the_topic(cluster, log):
    """A name server that was restarted knows it when its brokers have registered."""
    with prepared(cluster, cluster, log) as run:
        batches = run.batches(follow=True)
        assert next(batches) == 0
        cluster.faults.add(
            faults.answer(17, "No topic route info"),
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
            topic="src",
        )
        cluster.send("src", bodies(3))
        assert next(batches) == 3
        assert run.report.is_complete


def test_a_broker_that_has_left_the_route_is_in_the_plan(
    rmq_cluster_factory, log, monkeypatch, tmp_path, capfd
):
    """The rest of the topic was copied as if it were the whole."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("src", queues=1)
    cluster.create_topic("dst", queues=1)
    cluster.create_group("billing")
    for each in cluster.brokers:
        offsets = each.state.offsets
        cluster.call(lambda at=offsets: at.commit("billing", "src", 0, 0))
    assert run(["lag", "billing", "-n", cluster.namesrv]) == 0
    cluster.broker("broker-b").kill()
    words = ["copy", "src", "dst", "--execute", "--yes", "--log", str(log)]
    assert run([*words, "-n", cluster.namesrv]) == 7
    err = capfd.readouterr().err
    assert "src@broker-b:0: it is no longer in the route" in err


def test_of_a_topic_that_no_group_reads_a_broker_that_has_left_is_named(
    rmq_cluster_factory, log, monkeypatch, tmp_path, capfd
):
    """What the broker may have of it was left out without a word."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("src", queues=1)
    cluster.create_topic("dst", queues=1)
    assert run(["brokers", "-n", cluster.namesrv]) == 0
    cluster.broker("broker-b").kill()
    cluster.send("src", bodies(2), broker="broker-a")
    words = ["copy", "src", "dst", "--execute", "--yes", "--log", str(log)]
    assert run([*words, "-n", cluster.namesrv]) == 0
    err = capfd.readouterr().err
    assert "2 messages copied" in err
    assert "warning: broker-b is no longer in the route (last seen " in err
    assert "): what it may have of the topic is not copied; if it was removed" in err


def test_a_tag_is_found_among_delayed_messages(cluster, log):
    """Brokers store their time of delivery in place of the tag's hash."""
    for tag in ("Late", "Later"):
        words = ["send", "src", tag, "--tag", tag, "--delay", "9"]
        assert run([*words, "-n", cluster.namesrv]) == 0
    words = ["copy", "SCHEDULE_TOPIC_XXXX", "dst", "--tag", "Late", "--execute"]
    code = run([*words, "--yes", "--log", str(log), "-n", cluster.namesrv])
    assert code == 0
    found = [body for each in stored(cluster, "dst").values() for body in each]
    assert len(found) == 1
