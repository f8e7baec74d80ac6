"""An export into a table in memory: what it writes, and what it refuses."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    BrokerError,
    NotFoundError,
    PartialError,
    RefusedError,
    UsageError,
)
from rmqcli.position import AtOffset, Earliest, Latest
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.spark.export.export import ExportOptions
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.spark.source.data_source import schema_ddl
from rmqcli.spark.tables.export import TableExport
from rmqcli.spark.tables.record import record_from_json, record_to_json
from rmqcli.spark.tables.table import Commit, TableState
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.wiped import wiped

PLAIN = (
    ("topic", "string"),
    ("broker_name", "string"),
    ("queue_id", "int"),
    ("queue_offset", "bigint"),
    ("msg_id", "string"),
    ("tags", "string"),
    ("keys", "string"),
    ("born_timestamp", "timestamp"),
    ("store_timestamp", "timestamp"),
    ("born_host", "string"),
    ("store_host", "string"),
    ("reconsume_times", "int"),
    ("flag", "int"),
    ("sys_flag", "int"),
    ("commit_log_offset", "bigint"),
    ("body", "binary"),
    ("properties", "map<string,string>"),
)
DECODED = (
    *PLAIN,
    ("value", "struct<id:bigint>"),
    ("_corrupt_body", "binary"),
)
VALUE_JSON = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,'
    '"metadata":{}}]}'
)


class MemoryTable:
    """A table that keeps its records as text; its session can be opened repeatedly."""

    def __init__(self, state=None, *, rows=0):
        self.name = "./t"
        self.kept: Any = state or TableState()
        self.rows = rows
        self.left_out = 0
        self.texts = []
        self.views = []
        self.opened = 0

    @contextlib.contextmanager
    def open(self):
        self.opened += 1
        yield self

    def state(self):
        return self.kept

    def is_empty(self):
        return not self.rows

    def write(self, view, record, *, watch):
        self.views.append(view)
        self.texts.append(record_to_json(record))
        columns = DECODED if "value" in schema_ddl(view.options) else PLAIN
        self.kept = TableState(
            columns=columns,
            value_json=VALUE_JSON if columns is DECODED else None,
            newest=record_from_json(self.texts[-1], table="./t"),
            sequence=record.sequence + 1,
            position=len(self.texts),
        )

    def committed(self, run_id, before):
        assert self.kept.newest.run_id == run_id
        read = self.kept.newest.read.values()
        rows = sum(end - start for start, end in read) - self.left_out
        version = str(self.kept.position)
        return Commit(version=version, rows=rows, files=1, file_bytes=1)

    def warnings(self):
        return ["a worker's"] * self.left_out


class Report:
    def __init__(self):
        self.texts = []

    def info(self, text):
        self.texts.append(text)

    def planned(self, topic, queues):
        self.texts.append(f"{topic} {sum(q.end - q.start for q in queues)}")

    def progress(self, progress):
        pass


class SomeCluster:
    """A cluster whose queues are changed by `found`."""

    def __init__(self, cluster, found):
        self._cluster = cluster
        self._found = found
        self.config = cluster.config
        self.source = cluster.source
        self.name_of = cluster.name_of
        self.last_messages = cluster.last_messages
        self.check_same = cluster.check_same

    def resolve(self, request):
        return self._found(self._cluster.resolve(request))


@pytest.fixture
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.send("orders", ['{"id": 1}'] * 10)
        yield cluster


@pytest.fixture
def export(cluster):
    """Runs an export into a table; returns its run and its messages."""

    def run_it(
        table, *, topic="orders", start=None, end=None, options=(), found=list, **fields
    ):
        report = Report()
        given = set(fields) | ({"from_position"} if start is not None else set())
        job = TableExport(
            request=ExportRequest(
                topic=topic,
                from_position=str(start or "earliest"),
                to_position=str(end or "latest"),
                **fields,
            ),
            options=ExportOptions(path="", given=frozenset(given), **dict(options)),
            cluster=SomeCluster(
                BrokerCluster(
                    config=ClientConfig(namesrv=(cluster.namesrv,)),
                    start=start or Earliest(),
                    end=end or Latest(),
                    note=report.info,
                ),
                found,
            ),
            report=report,
            clock=SYSTEM_CLOCK,
            open_session=table.open,
        )
        return job.run(), report.texts

    return run_it


FOLLOW = {"since_last": True}.items()


def test_a_range_is_written_once_and_then_continued(export, cluster):
    table = MemoryTable()
    run, said = export(table)
    assert run.offsets == 10
    assert said == ["orders 10"]
    (text,) = table.texts
    record: Any = record_from_json(text, table="")
    assert (record.topic, record.cluster, record.sequence) == (
        "orders",
        "DefaultCluster",
        0,
    )
    assert record.read == {("broker-a", 0): (0, 5), ("broker-a", 1): (0, 5)}
    (view,) = table.views
    assert {(q.queue_id, p.start, p.end) for q, p in view.plans.items()} == {
        (0, 0, 5),
        (1, 0, 5),
    }
    # the same export again, and then an export of new messages, of which there are none
    run, said = export(table)
    assert run.commit is None
    assert said == [f"nothing to do after run {record.run_id}"]
    run, said = export(table, options=FOLLOW)
    assert run.commit is None
    assert said == [f"nothing new since run {record.run_id}"]
    cluster.send("orders", ["new"] * 4)
    run, said = export(table, options=FOLLOW)
    assert said == ["orders 4"]
    second = table.kept.newest
    assert second.read == {("broker-a", 0): (5, 7), ("broker-a", 1): (5, 7)}
    assert second.covered == {("broker-a", 0): ((0, 7),), ("broker-a", 1): ((0, 7),)}
    assert second.sequence == 1


def test_a_part_of_what_is_there_is_refused(export, cluster):
    table = MemoryTable()
    export(table)
    cluster.send("orders", ["new"] * 2)
    with pytest.raises(RefusedError, match="has 10 of these 12 offsets already") as it:
        export(table)
    assert it.value.hint.startswith("use since_last=True to export newer messages")
    assert len(table.texts) == 1


def test_what_lies_before_is_added(export):
    table = MemoryTable()
    export(table, start=AtOffset(3), end=AtOffset(5))
    export(table, start=AtOffset(0), end=AtOffset(2))
    assert table.kept.newest.covered[("broker-a", 0)] == ((0, 2), (3, 5))
    # the next run continues at the end of the newest range: the caller chose the gap
    run, _ = export(table, options=FOLLOW)
    assert run.offsets == 0
    with pytest.raises(RefusedError, match="has 8 of these 10 offsets"):
        export(table)


def test_other_tags_of_the_same_range_are_refused(export):
    table = MemoryTable()
    export(table, tag="New")
    assert table.kept.newest.tag == "New"
    with pytest.raises(RefusedError, match="10 of these 10 offsets already, with the"):
        export(table)


def test_the_tag_goes_on(export, cluster):
    table = MemoryTable()
    export(table, tag="New")
    cluster.send("orders", ["new"])
    export(table, options=FOLLOW)
    assert table.kept.newest.tag == "New"
    assert table.views[-1].options.tags == {"New"}


def test_another_tag_does_not_go_on_from_there(export, cluster):
    """What the first run had left out was then missing, and nothing said so."""
    table = MemoryTable()
    export(table, tag="New")
    cluster.send("orders", ["new"])
    with pytest.raises(RefusedError, match="messages with the tag Old cannot be") as it:
        export(table, options=FOLLOW, tag="Old")
    assert it.value.hint == "export messages with the tag Old into another table"
    assert len(table.texts) == 1
    run, _ = export(table, options=FOLLOW, tag="New || New")
    assert run.offsets == 1


def test_there_has_to_be_something_to_follow(export):
    with pytest.raises(UsageError, match="has no commit of an export to follow"):
        export(MemoryTable(), options=FOLLOW)


def test_another_topic_and_another_cluster_are_refused(export, cluster):
    table = MemoryTable()
    export(table)
    cluster.create_topic("payments", queues=1)
    with pytest.raises(RefusedError, match="an export of topic orders, not payments"):
        export(table, topic="payments")
    elsewhere = replace(table.kept.newest, cluster="Berlin")
    table.kept = replace(table.kept, newest=elsewhere)
    with pytest.raises(RefusedError, match="cluster Berlin, not DefaultCluster"):
        export(table)


def test_an_unknown_topic_is_found_before_spark_starts(export):
    table = MemoryTable()
    with pytest.raises(NotFoundError):
        export(table, topic="nowhere")
    assert table.opened == 0


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (PLAIN[:-1], "properties is missing"),
        ((*PLAIN, ("mine", "int")), "mine is not a column of the export"),
        ((("topic", "int"), *PLAIN[1:]), "topic is int, not string"),
        (DECODED, "value is not a column of the export"),
    ],
)
def test_other_columns_are_refused(export, columns, words):
    table = MemoryTable(TableState(columns=columns))
    with pytest.raises(RefusedError, match=words):
        export(table)
    assert table.texts == []


def test_a_table_without_rows_that_was_made_before_is_used(export):
    table = MemoryTable(TableState(columns=tuple(reversed(PLAIN)), sequence=1))
    run, _ = export(table)
    assert run.commit is not None
    assert table.kept.newest.sequence == 1


def test_rows_that_no_commit_explains_need_a_start(export):
    table = MemoryTable(TableState(columns=PLAIN, sequence=1), rows=5)
    with pytest.raises(RefusedError, match="no commit records their offsets") as it:
        export(table)
    assert "from_position=POSITION" in it.value.hint
    export(table, start=AtOffset(0))
    assert table.kept.newest.ends() == {("broker-a", 0): 5, ("broker-a", 1): 5}


def test_a_topic_that_was_made_anew_is_refused(export):
    table = MemoryTable()
    export(table)
    newest = table.kept.newest
    covered = {**newest.covered, ("broker-a", 0): ((0, 9),)}
    table.kept = replace(table.kept, newest=replace(newest, covered=covered))
    with pytest.raises(RefusedError, match="was deleted and created again") as caught:
        export(table, options=FOLLOW)
    assert caught.value.hint == "export the new topic into another table"


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (0, "orders@broker-a:0 ends at 0, but the table has read up to 5: the topic"),
        (10, "orders@broker-a:0 has another message at offset 4 than the table has"),
        (14, "orders@broker-a:0 has another message at offset 4 than the table has"),
    ],
)
@pytest.mark.parametrize("options", [FOLLOW, ()])
def test_a_table_is_not_continued_with_a_wiped_topic(
    export, cluster, rmq_cluster_factory, count, error, options
):
    """The first ten messages of the new one counted as exported: they were lost."""
    table = MemoryTable()
    export(table)
    new = wiped(cluster, rmq_cluster_factory)
    new.create_topic("orders", queues=2)
    new.send("orders", ["new"] * count)
    with pytest.raises(RefusedError, match=error) as caught:
        export(table, options=options)
    assert caught.value.hint == "export the new topic into another table"
    assert len(table.texts) == 1


def test_each_record_notes_the_last_message_of_each_queue(export, cluster):
    table = MemoryTable()
    export(table, end=AtOffset(4))
    ids = {each.queue_offset: each for each in table.kept.newest.noted.values()}
    assert ids.keys() == {3}
    cluster.send("orders", ["new"] * 2, queue_id=1)
    export(table, options=FOLLOW)
    noted = table.kept.newest.noted
    assert {key: each.queue_offset for key, each in noted.items()} == {
        ("broker-a", 0): 4,
        ("broker-a", 1): 6,
    }
    # An earlier range does not replace what is known of a later one.
    other = MemoryTable()
    export(other, start=AtOffset(3))
    export(other, start=AtOffset(0), end=AtOffset(2))
    assert {each.queue_offset for each in other.kept.newest.noted.values()} == {4, 6}


@pytest.mark.parametrize(("removed", "noted"), [(2, 0), (4, 0), (5, 1)])
def test_retention_is_not_a_wipe(export, cluster, removed, noted):
    """When all that was exported has expired, nothing is left to compare."""
    table = MemoryTable()
    export(table)
    cluster.send("orders", ["new"] * 4)
    cluster.broker().trim("orders", removed)
    run, said = export(table, options=FOLLOW)
    assert run.offsets == 4
    assert len([text for text in said if "still the same" in text]) == noted


def test_a_record_of_an_earlier_version_is_followed_with_a_note(export, cluster):
    """It has noted no messages."""
    table = MemoryTable()
    export(table)
    table.kept = replace(table.kept, newest=replace(table.kept.newest, noted={}))
    for notes in (1, 0):
        cluster.send("orders", ["new"] * 4)
        run, said = export(table, options=FOLLOW)
        assert run.offsets == 4
        assert len([text for text in said if "still the same" in text]) == notes


def test_a_broker_that_does_not_let_it_compare_ends_the_export(export, cluster):
    table = MemoryTable()
    export(table)
    cluster.send("orders", ["new"] * 4)
    cluster.faults.add(faults.answer(1, "no disk"), code=RequestCode.PULL_MESSAGE)
    with pytest.raises(BrokerError, match="no disk"):
        export(table, options=FOLLOW)
    assert len(table.texts) == 1


def test_a_queue_that_is_gone_has_to_be_accepted_once(export):
    table = MemoryTable()
    export(table)
    newest = table.kept.newest
    covered = {**newest.covered, ("broker-b", 3): ((0, 9),)}
    table.kept = replace(table.kept, newest=replace(newest, covered=covered))
    with pytest.raises(PartialError, match="broker-b queue 3 is no longer in the"):
        export(table, options=FOLLOW)
    _, said = export(table, options={"since_last": True, "allow_gaps": True}.items())
    assert said == [
        "broker-b queue 3 is no longer in the route; it was exported up to 9",
        "orders 0",
    ]
    assert table.kept.newest.gone == (("broker-b", 3),)
    run, said = export(table, options=FOLLOW)
    assert run.commit is None, said


def test_a_queue_that_left_the_route_is_named_again_when_it_has_been_back(
    export, cluster
):
    def without_queue_1(extents):
        return [each for each in extents if each.queue.queue_id != 1]

    table = MemoryTable()
    export(table)
    gaps = {"since_last": True, "allow_gaps": True}.items()
    export(table, found=without_queue_1, options=gaps)
    assert table.kept.newest.gone == (("broker-a", 1),)
    cluster.send("orders", ["more"] * 10)
    export(table, options=FOLLOW)
    assert table.kept.newest.gone == ()
    with pytest.raises(PartialError, match="queue 1 is no longer in the route; it was"):
        export(table, found=without_queue_1, options=FOLLOW)


def test_offsets_that_were_removed_have_to_be_accepted(export):
    def without_four(extents):
        return [replace(each, min_offset=4) for each in extents]

    table = MemoryTable()
    with pytest.raises(PartialError, match="queue 0: offsets 0 to 3 are no longer"):
        export(table, start=AtOffset(0), found=without_four)
    assert table.texts == []
    gaps = {"allow_gaps": True}.items()
    run, _ = export(table, start=AtOffset(0), found=without_four, options=gaps)
    assert run.offsets == 2
    export_four = replace(
        table.kept.newest,
        covered={("broker-a", 0): ((0, 2),), ("broker-a", 1): ((0, 5),)},
    )
    table.kept = replace(table.kept, newest=export_four)
    with pytest.raises(PartialError, match="has lost offsets 2 to 3 since the last"):
        export(table, found=without_four, options=FOLLOW)


def test_first_messages_of_an_added_queue_that_were_removed_have_to_be_accepted(export):
    def added(extents):
        key = replace(extents[1].queue, queue_id=2)
        return [
            *extents,
            replace(extents[1], queue=key, asked_start=3, min_offset=3),
        ]

    table = MemoryTable()
    export(table)
    with pytest.raises(PartialError, match="queue 2 has lost offsets 0 to 2 since the"):
        export(table, found=added, options=FOLLOW)
    assert len(table.texts) == 1


def test_bodies_are_decoded_to_the_types_of_the_table(export, cluster):
    table = MemoryTable()
    _, said = export(table, decode="json", decode_infer=5)
    assert said == ["inferred schema: `id` bigint", "orders 10"]
    assert table.kept.newest.decode == "json"
    cluster.send("orders", ['{"id": "text"}'])
    # if it were inferred again, id would be a string
    for fields in ({}, {"decode": "json", "decode_infer": 5}):
        cluster.send("orders", ['{"id": 2}'])
        export(table, options=FOLLOW, **fields)
        assert table.views[-1].options.decoding.schema == "`id` bigint"


def test_bodies_that_were_decoded_otherwise_are_named(export):
    table = MemoryTable(TableState(columns=DECODED, value_json=VALUE_JSON))
    export(table, start=AtOffset(0), decode="json", decode_infer=5)
    newest = replace(table.kept.newest, decode="avro")
    table.kept = replace(table.kept, newest=newest)
    with pytest.raises(RefusedError, match="decodes bodies as avro"):
        export(table, options=FOLLOW)


def test_what_may_be_left_out_is_said_for_each_kind(export):
    for options, expected in [
        ({}, (True, True)),
        ({"allow_gaps": True}, (False, True)),
        ({"allow_undecodable": True}, (True, False)),
    ]:
        table = MemoryTable()
        export(table, options=options.items())
        chosen = table.views[-1].options
        assert (chosen.fail_on_data_loss, chosen.fail_on_undecodable) == expected


def test_what_was_left_out_is_counted(export):
    table = MemoryTable()
    table.left_out = 1
    run, _ = export(table, options={"allow_gaps": True}.items())
    assert (run.without_row, run.warnings) == (1, ("a worker's",))
    other = MemoryTable()
    run, _ = export(other)
    assert (run.without_row, run.warnings) == (0, ())
    # with a tag the number is not known
    tagged = MemoryTable()
    tagged.left_out = 1
    run, _ = export(tagged, tag="New")
    assert run.without_row == 0
