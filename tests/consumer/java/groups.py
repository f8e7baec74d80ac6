"""Groups on a real broker: clients of other versions, and the owners of queues."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.kit import configuration
from tests.kit.artefacts import class_path
from tests.kit.java_program import java_producer
from tests.kit.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path


class ClientOf:
    """Java clients of `version` for a cluster of any version, as JavaConsumer needs."""

    def __init__(self, cluster, version: str, directory: Path) -> None:
        self.namesrv = cluster.namesrv
        self.version = version
        self._class_path = class_path(version)
        self._home = directory / f"home-{version}"
        folder = self._home / "conf"
        folder.mkdir(parents=True)
        text = configuration.logback(version, level="ERROR")
        (folder / "logback_tools.xml").write_text(text)

    def tools_home(self) -> Path:
        return self._home

    def class_path(self) -> str:
        return self._class_path


def lag(cluster, group, *flags):
    """Return the group as `rmq lag` shows it; empty while the group is unknown."""
    words = ["lag", group, "-n", cluster.namesrv, "-o", "json", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "rmqcli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return json.loads(done.stdout)[0] if done.returncode == 0 else {}


def held(cluster, group, topic):
    """Return the queue ids of `topic` by client id, as the members report them."""
    return {
        member["client_id"]: sorted(
            int(queue.rpartition(":")[2])
            for queue in member["queues"] or ()
            if queue.startswith(f"{topic}@")
        )
        for member in lag(cluster, group).get("members") or ()
    }


def is_committed(cluster, group, topic):
    """Whether all messages of `topic` are consumed and committed."""
    queues = lag(cluster, group).get("queues") or ()
    lags = [queue["lag"] for queue in queues if queue["topic"] == topic]
    return bool(lags) and all(each == 0 for each in lags)  # None: nothing committed


def send(cluster, topic, bodies, *, queues=8):
    """Send each body to the next queue of the topic in turn."""
    specs = [
        {
            "topic": topic,
            "bodyB64": base64.b64encode(body.encode()).decode(),
            "brokerName": "broker-a",
            "queueId": number % queues,
        }
        for number, body in enumerate(bodies)
    ]
    sent = java_producer(cluster, specs)
    assert {each.get("sendStatus") for each in sent} == {"SEND_OK"}, sent
    return sent


def bodies_of(java):
    """Return the bodies that a JavaConsumer has consumed so far."""
    java.wait_until(lambda: True, what="anything")
    return [base64.b64decode(each["bodyB64"]).decode() for each in java.messages]
