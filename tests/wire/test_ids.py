"""Ids, hashes and checksums equal Java's exactly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rmqcli.api.calls import pull as calls_group_pull
from rmqcli.api.calls import pull as calls_pull
from rmqcli.broker.requests.pull_message import (
    FLAG_COMMIT_OFFSET,
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
)
from rmqcli.broker.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rmqcli.engine.allocate import sort_client_ids, sort_queues
from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue
from rmqcli.store.fixed_files import FixedFiles, OpenFiles
from rmqcli.wire.ids import (
    OffsetMsgId,
    UniqueId,
    crc32,
    decode_offset_msg_id,
    decode_unique_id,
    encode_offset_msg_id,
    encode_unique_id,
    host_bytes,
    host_text,
    java_string_hash,
    made_at_ms,
    message_group_index,
    since_month_start_ms,
    tags_code,
)
from rmqcli.wire.version import V4_0_0, version_name
from tests.golden_vectors import from_base64, load
from tests.kit.rows import each_row


def of_kind(kind: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{case['rocketmq']} {index}")
        for index, case in enumerate(load("ids"))
        if case["kind"] == kind
    ]


@each_row("case", of_kind("offset_msg_id"))
def test_offset_msg_id_both_ways(case):
    made = OffsetMsgId(case["host"], case["commit_log_offset"])
    assert encode_offset_msg_id(made.host, made.commit_log_offset) == case["id"]
    assert decode_offset_msg_id(case["id"]) == made
    assert decode_offset_msg_id(case["id"].lower()) == made


@each_row("case", of_kind("offset_msg_id_text"))
def test_odd_offset_msg_ids(case):
    """Ids that Java refuses are refused. So is the digit "Z", which Java accepts."""
    expected = case["expected"]
    if "error" in expected or "Z" in case["text"]:
        with pytest.raises(UsageError):
            decode_offset_msg_id(case["text"])
    else:
        assert decode_offset_msg_id(case["text"]) == OffsetMsgId(**expected)


@each_row("case", of_kind("unique_id"))
def test_unique_id_says_who_made_it_and_when(case):
    unique_id = decode_unique_id(case["id"])
    expected_ip = ":".join(part.lstrip("0") or "0" for part in case["ip"].split(":"))
    if "." in case["ip"]:
        assert unique_id.ip == case["ip"]
    else:
        assert host_bytes(f"[{unique_id.ip}]:0") == host_bytes(f"[{expected_ip}]:0")
    if "pid" in case:
        # Java's pid may be negative, because it reads the bytes as a signed short.
        assert unique_id.pid == case["pid"] & 0xFFFF
    made_ms = case["near_ms"]
    assert unique_id.since_month_start_ms == since_month_start_ms(made_ms, tz=UTC)
    assert encode_unique_id(unique_id) == case["id"]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "since_ms"),
    [
        ("2024-02-29T23:59:59+00:00", 29 * 86_400_000 - 1_000),
        ("2024-03-01T00:00:00+00:00", 0),
        ("2024-03-01T00:00:01+00:00", 1_000),
    ],
)
def test_the_time_of_a_unique_id_counts_from_the_first_of_its_month(now, since_ms):
    assert since_month_start_ms(ms(now), tz=UTC) == since_ms


def id_made(*, since_ms: int) -> str:
    return encode_unique_id(
        UniqueId(
            ip="10.0.0.1",
            pid=1,
            class_loader_hash=2,
            since_month_start_ms=since_ms,
            counter=3,
        )
    )


def moments(text: str, until_ms: int) -> list[str]:
    return [
        datetime.fromtimestamp(each / 1000, UTC).isoformat()
        for each in made_at_ms(text, until_ms=until_ms)
    ]


def test_a_unique_id_was_made_in_one_of_the_last_24_months():
    text = id_made(since_ms=1_000)
    until_ms = ms("2024-03-01T00:00:01+00:00")
    found = moments(text, until_ms)
    assert found[:2] == ["2024-03-01T00:00:01+00:00", "2024-02-01T00:00:01+00:00"]
    assert found[-1] == "2022-04-01T00:00:01+00:00"
    assert len(found) == 24
    # The moment itself counts, and a later one does not.
    assert moments(text, until_ms - 1)[0] == "2024-02-01T00:00:01+00:00"


@pytest.mark.parametrize(
    ("since_ms", "found"),
    [
        # A month may be an hour longer, where the change to winter time is in it.
        (30 * 86_400_000 + 3_599_999, ["2024-01-31", "2023-12-31", "2023-12-01"]),
        (30 * 86_400_000 + 3_600_000, ["2024-01-31", "2023-12-31", "2023-10-31"]),
        (29 * 86_400_000 + 3_599_999, ["2024-03-01", "2024-01-30", "2023-12-30"]),
        (29 * 86_400_000 + 3_600_000, ["2024-01-30", "2023-12-30", "2023-11-30"]),
    ],
)
def test_a_unique_id_was_not_made_in_a_month_that_is_too_short(since_ms, found):
    made = moments(id_made(since_ms=since_ms), ms("2024-03-29T00:00:00+00:00"))
    assert [each[:10] for each in made[:3]] == found


def test_an_id_of_a_grpc_client_has_its_second():
    text = "01" + "ab" * 8 + "00000A01" + "FFFFFFFF"
    made_ms = 1_609_459_200_000 + 0xA01 * 1_000
    assert list(made_at_ms(text, until_ms=made_ms)) == [made_ms]
    assert list(made_at_ms(text.lower(), until_ms=made_ms)) == [made_ms]
    assert list(made_at_ms(text, until_ms=made_ms - 1)) == []


@pytest.mark.parametrize("text", ["", "order-17", "02" + "0" * 32, "01" + "0" * 31])
def test_a_text_that_is_no_unique_id_has_no_moments(text):
    assert list(made_at_ms(text, until_ms=1 << 42)) == []


def test_a_unique_id_has_the_low_bits_of_numbers_that_are_too_long():
    long = UniqueId(
        ip="fe80::1",
        pid=0x1_2345,
        class_loader_hash=-1,
        since_month_start_ms=0x1_0000_0005,
        counter=0x1_0006,
    )
    text = encode_unique_id(long)
    assert text == "FE800000000000000000000000000001" + "2345FFFFFFFF000000050006"
    assert decode_unique_id(text).ip == "fe80::1"


@each_row("case", of_kind("string_hash"))
def test_string_hash(case):
    assert java_string_hash(case["text"]) == case["hash"]
    assert tags_code(case["text"]) == case["tags_code"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TagA", 2598919),
        ("标签", 857175),
        ("TopicT#k1", -1902674620),
        ("polygenelubricants", -(1 << 31)),
        ("\ud83d", 0xD83D),  # a lone surrogate
    ],
)
def test_string_hash_by_hand(text, expected):
    assert java_string_hash(text) == expected


#: Hashing.consistentHash of Guava, of String.hashCode.
BUCKETS = [
    *(("a", 1, 0), ("a", 4, 0), ("a", 64, 29)),
    *(("group-1", 1, 0), ("group-1", 4, 1), ("group-1", 7, 1), ("group-1", 64, 36)),
    *(("订单", 4, 1), ("订单", 64, 50), ("", 64, 0)),
    *(("zzzzzzzz", 4, 2), ("zzzzzzzz", 7, 5), ("zzzzzzzz", 64, 55)),
]


@each_row(("group", "queue_count", "expected"), BUCKETS)
def test_message_groups_go_to_the_queues_that_java_chooses(
    group, queue_count, expected
):
    assert message_group_index(group, queue_count) == expected


def test_tags_code_without_tags():
    assert tags_code(None) == 0
    assert tags_code("") == 0


@each_row("case", of_kind("crc32"))
def test_crc32(case):
    assert crc32(from_base64(case["bytes_b64"])) == case["crc32"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("0a00000100003039", "10.0.0.1:12345"),
        ("0a000001ffffffff", "10.0.0.1:-1"),  # an invalid port is shown as it is
        ("fe80000000000000000000000000000100002a9f", "[fe80:0:0:0:0:0:0:1]:10911"),
    ],
)
def test_hosts_both_ways(raw, text):
    assert host_text(bytes.fromhex(raw)) == text
    assert host_bytes(text) == bytes.fromhex(raw)


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1", "broker-a:10911", "10.0.0.1:x", "10.0.0.1:99999999999"]
)
def test_hosts_that_are_no_address(text):
    with pytest.raises(UsageError, match="is not ip:port"):
        host_bytes(text)


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 55, "g" * 32, "é" * 32, " 0" * 16]
)
def test_ids_that_are_no_id(text):
    for decode in (decode_offset_msg_id, decode_unique_id):
        with pytest.raises(UsageError, match="is not 32 or 56 hex digits"):
            decode(text)


@each_row("case", of_kind("version_name"))
def test_versions_from_4_0_0_on_have_javas_names(case):
    """Older versions, and numbers without a release, stay numbers."""
    ordinal, name = case["ordinal"], case["name"]
    said = version_name(ordinal)
    if ordinal < V4_0_0 - 1 or not name.startswith("V"):
        assert said == str(ordinal)
    else:
        assert "V" + said.replace(".", "_").replace("-", "_") == name


@each_row("case", of_kind("queue_order"))
def test_queues_are_sorted_as_by_java(case):
    queues = [MessageQueue(*each) for each in case["queues"]]
    assert sort_queues(queues) == [MessageQueue(*each) for each in case["sorted"]]


@pytest.mark.parametrize("case", of_kind("client_order"))
def test_client_ids_are_sorted_as_by_java(case):
    assert sort_client_ids(case["clients"]) == case["sorted"]


@each_row("case", of_kind("pull_sys_flag"))
def test_the_bits_of_a_pull_are_javas(case):
    bits = {
        "commit_offset": FLAG_COMMIT_OFFSET,
        "suspend": FLAG_SUSPEND,
        "subscription": FLAG_SUBSCRIPTION,
        "class_filter": case["value"] & 8,  # rmqcli neither sets nor reads these two
        "lite_pull": case["value"] & 0x10,
    }
    flag = sum(bit for name, bit in bits.items() if case.get(name))
    assert flag == case["value"]
    if "has_suspend" in case:
        assert bool(flag & FLAG_SUSPEND) is case["has_suspend"]
        assert flag & ~FLAG_COMMIT_OFFSET == case["without_commit_offset"]


def test_the_bits_of_a_pull_are_the_same_on_both_sides():
    ours = (
        calls_group_pull.FLAG_COMMIT_OFFSET,
        calls_pull.FLAG_SUSPEND,
        calls_pull.FLAG_SUBSCRIPTION,
    )
    assert ours == (FLAG_COMMIT_OFFSET, FLAG_SUSPEND, FLAG_SUBSCRIPTION)


@each_row("case", of_kind("group_topics"))
def test_topics_of_a_group_are_javas(case):
    group = case["group"]
    assert RETRY_PREFIX + group == case["retry_topic"]
    assert DLQ_PREFIX + group == case["dlq_topic"]


@pytest.mark.parametrize("case", of_kind("file_name"))
def test_files_of_a_store_are_named_as_by_java(case, tmp_path):
    """Files have a length of one byte, so that a file can begin at any offset."""
    (tmp_path / case["name"]).write_bytes(b"x")
    files = FixedFiles(tmp_path, 1, OpenFiles(writable=False))
    assert files.bases == [case["offset"]]
