"""A broker's folder without its broker: name server and brokers over it, for reading.

    with StoreServer(Path("/var/rocketmq/store")) as server:
        client(server.namesrv)

Answers what reads, refuses all else, and changes nothing in the folder, whose broker
may run. Members of groups are unknown: no folder knows them. What the broker writes
later is seen, its tables as often as it writes them (offsets: each 5 s).

Source: `BrokerController.initialize`, for what is read from a folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rmqcli.broker.cluster_store import broker_folders
from rmqcli.broker.namesrv import NameServer
from rmqcli.broker.offline_core import NAMESRV_READS, FolderBroker, ReadOnlyCore
from rmqcli.broker.server import Server
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.store.message_store import StoreError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rmqcli.clock import Clock

_HOST: Final = "127.0.0.1"


class StoreServer:
    """Serves a folder on free ports of this machine until it is closed.

    `folder` is a broker's storePathRootDir, or holds those of several brokers as
    `rmq broker --brokers` makes them. Raises StoreError for any other.
    """

    def __init__(self, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        folders = _checked(folder)
        self._server = Server(clock=clock)
        self._brokers: list[FolderBroker] = []
        try:
            now = self._server.now()
            names = NameServer(now)
            self._namesrv = self._server.open("namesrv", host=_HOST, port=0)
            self._namesrv.core = ReadOnlyCore(names, names.manners, NAMESRV_READS)
            for name, each in folders.items():
                port = self._server.open(each.name, host=_HOST, port=0)
                broker = FolderBroker(each, now, name=name, address=port.address)
                self._brokers.append(broker)
                broker.announce(names, now)
                port.core = broker
            self._server.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server: all a client needs."""
        return self._namesrv.address

    def close(self) -> None:
        """Close ports and files. Idempotent."""
        self._server.close()
        for broker in self._brokers:
            broker.close()


def _checked(folder: Path) -> dict[str | None, Path]:
    """Folders by the broker's name; None: its tables tell it. Raises StoreError."""
    try:
        if not folder.exists():
            raise StoreError(f"there is no folder {folder}")
        if not folder.is_dir():
            raise StoreError(f"{folder} is not a folder")
        several = broker_folders(folder)
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from error
    return dict(several.items()) if several else {None: folder}
