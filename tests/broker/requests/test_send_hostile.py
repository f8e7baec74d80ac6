"""Any bytes that a client sends to a handler get an answer and break nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.header import to_ext_fields
from rmqcli.wire.message.batch import BatchItem, encode_batch
from tests.broker.driving import Driver
from tests.broker.sending import like, send, send_header

CODES = [10, 310, 320, 36, 37, 370]
NAMES = [
    *"abcdefghijklm",
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId"),
    *("sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "batch"),
    *("offset", "group", "delayLevel", "maxReconsumeTimes", "commitOrRollback"),
    *("tranStateTableOffset", "commitLogOffset", "msgId", "fromTransactionCheck"),
]
VALUES = [
    *("0", "1", "-1", "8", "12", "2147483647", "-2147483648", "9223372036854775807"),
    *(
        "",
        "x",
        "true",
        "%RETRY%g",
        "%DLQ%g",
        "%RETRY%",
        "T",
        "TBW102",
        "a\x02b",
        "\ud800",
    ),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    *("DELAY\x013\x02", "DELAY\x01-9\x02", "DELAY\x01" + "9" * 40 + "\x02"),
    *("TRAN_MSG\x01true\x02PGROUP\x01pg\x02", "TRAN_MSG\x01true\x02REAL_QID\x019\x02"),
    *("TIMER_DELAY_SEC\x013\x02", "TIMER_DELIVER_MS\x01x\x02", "TIMER_OUT_MS\x019\x02"),
    *(
        "REAL_TOPIC\x01T\x02REAL_QID\x01" + "9" * 20 + "\x02",
        "\x01\x02\x01",
        "\x02" * 99,
    ),
    "CHECK_IMMUNITY_TIME_IN_SECONDS\x01" + "9" * 18 + "\x02TRAN_MSG\x01true\x02",
]
BODIES = [b"", b"x", b"0,,7", b"\xff" * 30, encode_batch([BatchItem(b"x")] * 3)]
FIELDS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=6)


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from(CODES), st.booleans(), FIELDS, st.sampled_from(BODIES)
        ),
        max_size=8,
    )
)
def test_any_request_is_answered_and_breaks_nothing(
    version: str, requests: list[tuple[int, bool, dict[str, str], bytes]]
) -> None:
    driver = Driver(like(version))
    send(driver, topic="Good")
    usual = to_ext_fields(send_header(properties={"TRAN_MSG": "true", "PGROUP": "pg"}))

    for number, (code, is_usual, fields, body) in enumerate(requests):
        command = RemotingCommand(
            code=code,
            language=0,
            version=513,
            opaque=number,
            flag=0,
            ext_fields=usual | fields if is_usual else fields,
            body=body,
        )
        assert driver.send(command) is not None
    driver.wait(130_000)

    assert send(driver, topic="Good").code == 0
    assert len(driver.messages("Good")) == 2
