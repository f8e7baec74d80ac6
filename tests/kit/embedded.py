"""The embedded cluster with the face of RealCluster, for the kit's Java programs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Self

from rmqcli.broker.cluster import EmbeddedCluster
from tests.kit import configuration
from tests.kit.artefacts import class_path

if TYPE_CHECKING:
    from pathlib import Path


class JavaOnEmbedded:
    """An embedded cluster, and where Java clients of `version` find their jars."""

    def __init__(self, version: str, directory: Path, **options: Any) -> None:
        self.version = version
        self.directory = directory
        self._class_path = class_path(version)
        conf = self.tools_home() / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "logback_tools.xml").write_text(
            configuration.logback(version, level="ERROR")
        )
        self.cluster = EmbeddedCluster(**options)

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv

    def tools_home(self) -> Path:
        return self.directory / "home"

    def class_path(self) -> str:
        return self._class_path

    def create_topic(self, topic: str | None = None, *, queues: int = 4) -> str:
        """Create a topic; without a name a new one."""
        name = topic if topic is not None else f"T-{uuid.uuid4().hex[:12]}"
        return self.cluster.create_topic(name, queues=queues)

    def close(self) -> None:
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
