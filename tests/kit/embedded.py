"""The embedded cluster with RealCluster's interface, so that tests run on both.

With `--rmq-versions embedded` every test of real brokers uses this cluster, with Java's
5.5.0 clients; tests of Java's clients use it with clients of other versions, too.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from typing import TYPE_CHECKING, Any, Self

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.settings import BrokerSettings
from tests.kit import configuration, raw
from tests.kit.artefacts import class_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rmqcli.broker.cluster.broker import EmbeddedBroker

#: Its name in `--rmq-versions`, and the version of its Java clients there.
EMBEDDED = "embedded"
CLIENT_VERSION = "5.5.0"


class JavaOnEmbedded:
    """An embedded cluster, and the jars of Java clients of `version`.

    `conf` has Java's names; settings that the embedded broker does not have are left
    out.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        *,
        conf: Mapping[str, str | int] | None = None,
        settings: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        self.version = version
        self.directory = directory
        self._class_path = class_path(version)
        folder = self.tools_home() / "conf"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "logback_tools.xml").write_text(
            configuration.logback(version, level="ERROR")
        )
        conf = {"enablePropertyFilter": "true", **(conf or {})}
        all_settings = {**_settings(conf), **(settings or {})}
        options.setdefault("store", directory / "store")
        self.cluster = EmbeddedCluster(settings=all_settings, **options)

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv

    @property
    def broker_count(self) -> int:
        return len(self.cluster.brokers)

    def broker_address(self, index: int = 0) -> str:
        return self._broker(index).address

    def broker_name(self, index: int = 0) -> str:
        return self._broker(index).name

    def store_directory(self, index: int = 0) -> Path:
        """The broker's folder; each of several brokers has one in the cluster's."""
        store: Path = self.cluster.options.store or self.directory
        return store if self.broker_count == 1 else store / self.broker_name(index)

    def tools_home(self) -> Path:
        return self.directory / "home"

    def class_path(self) -> str:
        return self._class_path

    def start_broker(self, index: int = 0) -> None:
        self._broker(index).restart()

    def stop_broker(self, index: int = 0) -> None:
        self._broker(index).close()

    def kill_broker(self, index: int = 0) -> None:
        self._broker(index).kill()

    def suspend_broker(self, index: int = 0) -> None:
        self._broker(index).hang()

    def resume_broker(self, index: int = 0) -> None:
        self._broker(index).resume()

    def create_topic(
        self,
        topic: str | None = None,
        *,
        queues: int = 4,
        brokers: Sequence[int] | None = None,
        attributes: str | None = None,
        **fields: Any,
    ) -> str:
        """Create a topic, under a new name if none is given, and return its name."""
        name = topic if topic is not None else f"T-{uuid.uuid4().hex[:12]}"
        if attributes is not None:
            pairs = (each.lstrip("+").split("=") for each in attributes.split(","))
            fields["attributes"] = dict(pairs)
        if brokers is None:
            return self.cluster.create_topic(name, queues=queues, **fields)
        for index in brokers:
            answer = self.ask(
                raw.UPDATE_AND_CREATE_TOPIC,
                {
                    "topic": name,
                    "defaultTopic": "TBW102",
                    "readQueueNums": str(queues),
                    "writeQueueNums": str(queues),
                    "perm": str(fields.get("perm", 6)),
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": "0",
                    "order": "false",
                },
                broker=index,
            )
            assert answer.code == 0, answer
        return name

    def ask(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        broker: int = 0,
    ) -> raw.Answer:
        """Send a request to a broker by its code, and return the raw answer."""
        return raw.ask(self.broker_address(broker), code, ext_fields, body=body)

    def close(self) -> None:
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _broker(self, index: int) -> EmbeddedBroker:
        return self.cluster.brokers[index]


def _settings(conf: Mapping[str, str | int]) -> dict[str, object]:
    """Convert Java's settings to our names and types, without those we lack."""
    kinds = {each.name: each.type for each in dataclasses.fields(BrokerSettings)}
    found: dict[str, object] = {}
    for java_name, value in conf.items():
        name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", java_name).lower()
        kind = str(kinds.get(name, ""))
        if kind.startswith("bool"):
            found[name] = str(value) == "true"
        elif kind.startswith("int"):
            found[name] = int(value)
        elif kind == "str":
            found[name] = str(value)
    return found
