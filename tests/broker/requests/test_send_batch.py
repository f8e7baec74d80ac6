"""Sending a batch: ordinary messages with consecutive offsets, all or none."""

from __future__ import annotations

import pytest

from rmqcli.store.memory import MemoryStore
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.batch import BatchItem, encode_batch
from tests.broker.driving import Driver
from tests.broker.sending import UNIQ_KEY, like, send, send_header

ITEMS = [
    BatchItem(b"one", {"TAGS": "a", "UNIQ_KEY": "1"}, flag=5),
    BatchItem(b"", {"KEYS": "k"}),
    BatchItem(b"three", {}),
]


@pytest.mark.parametrize("code", [310, 320])
@pytest.mark.parametrize(
    ("version", "transaction_id"), [("4.6.0", None), ("5.5.0", UNIQ_KEY)]
)
def test_a_batch_becomes_ordinary_messages(
    code: int, version: str, transaction_id: str | None
) -> None:
    driver = Driver(like(version))
    send(driver, queue_id=1)
    header = send_header(properties={"UNIQ_KEY": UNIQ_KEY}, queue_id=1, batch=True)

    answer = driver.ask(code, header, body=encode_batch(ITEMS))

    assert answer is not None
    stored = driver.messages("T", 1)[1:]
    assert [(each.body, each.flag, each.properties) for each in stored] == [
        (item.body, item.flag, item.properties) for item in ITEMS
    ]
    assert [each.queue_offset for each in stored] == [1, 2, 3]
    assert answer.code == 0
    assert answer.ext_fields["queueOffset"] == "1"
    assert answer.ext_fields["msgId"] == ",".join(each.offset_msg_id for each in stored)
    assert answer.ext_fields.get("transactionId") == transaction_id


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (send_header("%RETRY%g", batch=True), encode_batch(ITEMS)),
        (send_header(properties={"DELAY": "1"}, batch=True), encode_batch(ITEMS)),
        (send_header(sys_flag=4, batch=True), encode_batch(ITEMS)),
        (send_header(batch=True), encode_batch(ITEMS)[:-1]),
        (send_header(batch=True), b"no batch at all, only text of some length"),
    ],
    ids=["retry", "delayed", "transaction", "cut", "garbage"],
)
def test_illegal_batches_are_refused(header: object, body: bytes) -> None:
    driver = Driver()

    answer = driver.ask(RequestCode.SEND_BATCH_MESSAGE, header, body=body)  # type: ignore[arg-type]

    assert answer is not None
    assert answer.code == 13
    assert driver.store.log_bounds() == (0, 0)


def test_full_store_takes_none_of_a_batch() -> None:
    driver = Driver(store=MemoryStore(capacity_bytes=250))
    header = send_header(batch=True)

    answer = driver.ask(
        RequestCode.SEND_BATCH_MESSAGE, header, body=encode_batch(ITEMS)
    )

    assert answer is not None
    assert answer.code == 14
    assert driver.messages("T") == []


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
def test_a_batch_without_messages_is_code_1(version: str) -> None:
    driver = Driver(like(version))
    answer = driver.ask(320, send_header(batch=True))
    assert answer is not None
    assert answer.code == 1
    assert list(driver.store.queues()) == []
