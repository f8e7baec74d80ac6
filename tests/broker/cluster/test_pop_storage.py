"""What POP has delivered survives the end of a broker: its files, and SIGKILL."""

from __future__ import annotations

import json
import os
import signal

import pytest

from rmqcli.broker.cluster.persistence import MODES, ORDER, Persistence
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.wire import fastjson
from rmqcli.wire.codes import RequestCode
from tests.broker.behaviour.pop import Ack, BatchAck, Change, PopStage, Send, pop
from tests.broker.cluster.test_persistence import TextFiles
from tests.broker.driving import Driver, need
from tests.broker.popping import bodies, handles
from tests.broker.popping import pop as pop_of
from tests.broker.pulling import driver_with_topic, put
from tests.broker.wire_client import WireClient
from tests.kit.program import Program

#: Written by a broker of 5.5.0; the group popped two messages, acknowledged one.
REAL_ORDER = """{
	"orderInfoCount":1,
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"T@g":{
			0:{
				"a":"x",
				"cm":1,
				"i":60000,
				"l":1700000000000,
				"o":[0,1],
				"oc":{
					1:1
				},
				"ot":{
					1:1700000005000
				},
				"popTime":1700000000000
			}
		}
	}
}"""
REAL_MODES = """{
	"messageRequestModeMap":{
		"T":{
			"g":{
				"consumerGroup":"g",
				"mode":"POP",
				"popShareQueueNum":0,
				"topic":"T"
			}
		}
	}
}"""


def with_files(driver: Driver, texts: dict[str, str]) -> Persistence:
    persistence = Persistence(driver.broker, TextFiles(texts))
    persistence.load()
    return persistence


def test_orders_of_a_real_broker_are_continued():
    """The second message is invisible until its own time, then comes a third time."""
    driver = driver_with_topic()
    put(driver, "A", "B")
    with_files(driver, {ORDER: REAL_ORDER})
    driver.broker.offsets.commit("g", "T", 0, 1)

    driver.wait(4_999)
    assert bodies(pop_of(driver, order=True)) == []
    driver.wait(1)
    answer = pop_of(driver, order=True)

    assert bodies(answer) == ["B"]
    assert answer.ext_fields["orderCountInfo"] == "0 qo0%1 2;0 0 2"


def test_orders_and_modes_are_written_as_a_real_broker_does():
    texts = {ORDER: REAL_ORDER, MODES: REAL_MODES}
    driver = Driver()
    with_files(driver, texts)
    written = TextFiles({})

    Persistence(driver.broker, written).save(ORDER, MODES)

    real = fastjson.loads(REAL_ORDER)
    assert isinstance(real, dict)
    assert fastjson.loads(written.texts[ORDER]) == {"table": real["table"]}
    assert fastjson.loads(written.texts[MODES]) == fastjson.loads(REAL_MODES)


def test_a_mode_is_written_before_it_is_answered():
    driver = driver_with_topic()
    files = TextFiles({})
    persistence = Persistence(driver.broker, files)
    persistence.load()
    persistence.save_changes()
    body = json.dumps({"topic": "T", "consumerGroup": "g", "mode": "POP"}).encode()
    need(driver.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body))

    persistence.save_changes()

    assert files.writes[-1] == MODES
    assert RequestCode.SET_MESSAGE_REQUEST_MODE in BROKER_REQUESTS.codes()


def test_what_is_out_in_order_survives_a_restart_of_the_memory():
    driver = driver_with_topic()
    put(driver, "A", "B")
    handles(pop_of(driver, order=True, max_msg_nums=1))
    after = Driver(store=driver.store, now=driver.now)
    after.broker.topics.load(driver.broker.topics.all().values())
    after.broker.offsets.load(driver.broker.offsets.table())
    after.broker.order_infos.load(driver.broker.order_infos.body(), driver.now)

    assert bodies(pop_of(after, order=True)) == []
    after.wait(60_000)
    assert bodies(pop_of(after, order=True)) == ["A", "B"]


BROKER = """
import pathlib, sys, threading
from rmqcli.broker.cluster.embedded import EmbeddedCluster
cluster = EmbeddedCluster(store=pathlib.Path(sys.argv[1]))
print(cluster.broker().address)
threading.Event().wait()
"""


@pytest.mark.slow
def test_a_broker_that_was_killed_goes_on_where_it_was(tmp_path):
    """SIGKILL right after the answers, before offsets were stored."""
    store = str(tmp_path / "store")
    with Program(BROKER, tmp_path, store) as program:
        stage = PopStage(program.line())
        for step in (
            Send("a b c d e"),
            pop("a b c d", maxMsgNums=4, invisibleTime=60_000),
            Ack("a"),
            Change("b", 60_000),
            BatchAck("d"),
        ):
            stage.play(step)
        os.kill(program.process.pid, signal.SIGKILL)
        program.process.wait()
        stage.close()
    with Program(BROKER, tmp_path, store) as program:
        stage.client = WireClient(program.line())
        for step in (
            pop("e"),
            Change("c", 1_000),
            pop("c1", until=True),
            Ack("c"),
            Ack("e"),
            Change("b", 1_000),
            pop("b1", until=True),
        ):
            stage.play(step)
        stage.close()
