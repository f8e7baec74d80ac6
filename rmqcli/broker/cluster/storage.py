"""Where the brokers of a cluster keep their messages and tables: memory, or folders.

A single broker uses the folder itself, so that it looks like a real broker's. Several
brokers, and slaves, each use a folder inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import ConfigError
from rmqcli.files import file_name_fault, folder_fault
from rmqcli.log import get_logger
from rmqcli.store.memory import MemoryStore
from rmqcli.store.message_store import MessageStore, StoreError, TimerProgress

if TYPE_CHECKING:
    from pathlib import Path

    from rmqcli.broker.cluster.persistence import Persistence
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.store.disk_store import DiskStore

logger = get_logger(__name__)


def broker_folder(store: Path, *, name: str, broker_id: int, brokers: int) -> Path:
    """Return the folder of one broker.

    Raises ConfigError if the broker's name cannot be the name of a folder, if the
    folder belongs to another user, or if it was used by one broker and several want to
    use it, or the other way round, because they would start without its messages.
    """
    own = name if broker_id == 0 else f"{name}-{broker_id}"
    fault = file_name_fault(own)
    if fault is not None:
        raise ConfigError(f"broker {name!r} cannot have a folder: its name {fault}")
    fault = folder_fault(store)
    if fault is not None:
        raise ConfigError(
            f"{store} {fault}",
            hint="choose a folder in your home directory",
        )
    is_single = _is_store(store)
    if brokers > 1 and is_single:
        raise ConfigError(
            f"folder {store} holds the data of one broker, not of {brokers}",
            hint="choose another folder, or start one broker",
        )
    if brokers > 1 or broker_id:
        return store / own
    inner = list(broker_folders(store))
    if inner:
        raise ConfigError(
            f"folder {store} holds the data of {len(inner)} brokers, not of one",
            hint=f"start {len(inner)} brokers, or choose {store / inner[0]}",
        )
    return store


def broker_folders(store: Path) -> dict[str, Path]:
    """Return the masters' folders by name; empty unless it is for several brokers."""
    if _is_store(store):
        return {}
    return {
        each.name: each for each in sorted(store.glob("broker-?")) if _is_store(each)
    }


def _is_store(folder: Path) -> bool:
    # A broker creates its lock when it starts, and its log at the first message.
    return (folder / "lock").exists() or (folder / "commitlog").is_dir()


class BrokerStorage:
    """Keeps a broker's messages and tables while the broker is down, in memory."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def open(self) -> MessageStore:
        """Open the store; at most once between two calls of `abandon` or `close`."""
        return self._store

    def load(self, core: BrokerState, before: BrokerState | None) -> None:
        """Fill the tables of a new core; `before` is the previous core, if any."""
        if before is not None:
            core.topics.load(before.topics.all().values())
            core.groups.load(before.groups.all().values())
            core.offsets.load(before.offsets.table())
            for (topic, group), queues in before.offsets.pull_table().items():
                for queue_id, offset in queues.items():
                    core.offsets.commit_pull(group, topic, queue_id, offset)
            core.schedule.load(before.schedule.offsets)
            core.timer_messages.load(before.timer_messages.progress)
            core.request_modes.load(before.request_modes.body())
            core.order_infos.load(before.order_infos.body(), core.started)
            core.accounts = before.accounts

    def save(self, core: BrokerState) -> None:
        """Keep the tables of a core; in memory, the old core can still be read."""

    def save_changes(self) -> None:
        """Keep changed topics and groups, before an answer can reveal the change."""

    def expire(self, now_ms: int) -> None:
        """Delete messages beyond the limits of retention; memory has none."""

    def abandon(self) -> None:
        """Release the store without flushing, as a killed process does."""

    def close(self) -> None:
        """Flush and release the store. Raises StoreError."""


class FolderStorage(BrokerStorage):
    """Keeps everything in RocketMQ's own files."""

    def __init__(self, folder: Path) -> None:
        from rmqcli.store.disk_store import DiskStore

        super().__init__()
        self._make = DiskStore
        self._folder = folder
        self._disk: DiskStore | None = None
        self._persistence: Persistence | None = None
        self._timers = TimerProgress()  # as it was last written or read

    def open(self) -> MessageStore:
        self._disk = self._make(self._folder)
        return self._disk

    def load(self, core: BrokerState, before: BrokerState | None) -> None:
        from rmqcli.broker.cluster.persistence import INTERVAL_MS, Persistence
        from rmqcli.store.checkpoint import read_timer_progress
        from rmqcli.store.config_files import ConfigFolder

        config = ConfigFolder(self._folder / "config")
        config.clean()
        self._persistence = Persistence(core, config)
        self._persistence.load()
        self._persistence.start(core.started)
        self._timers = read_timer_progress(self._folder)
        core.timer_messages.load(self._timers)
        core.timers.every(
            INTERVAL_MS, core.started, lambda _: self._try_to_save_timers(core)
        )

    def save(self, core: BrokerState) -> None:
        if self._persistence is not None:
            self._persistence.save()
            self._save_timers(core)

    def _save_timers(self, core: BrokerState) -> None:
        """Write how far the timers have come, after what they have delivered.

        Raises StoreError.
        """
        from rmqcli.store.checkpoint import write_timer_progress

        progress = core.timer_messages.progress
        if progress != self._timers and self._disk is not None:
            self._disk.flush()
            write_timer_progress(self._folder, progress)
            self._timers = progress

    def _try_to_save_timers(self, core: BrokerState) -> None:
        try:
            self._save_timers(core)
        except StoreError as error:
            logger.warning("could not write timers: %s; retrying", error)

    def save_changes(self) -> None:
        if self._persistence is not None:
            self._persistence.save_changes()

    def expire(self, now_ms: int) -> None:
        if self._disk is not None:
            self._disk.expire(now_ms)

    def abandon(self) -> None:
        if self._disk is not None:
            self._disk.abandon()
            self._disk = None

    def close(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.close()


def storage_in(folder: Path | None) -> BrokerStorage:
    """Return storage in a folder, or in memory without a folder."""
    return BrokerStorage() if folder is None else FolderStorage(folder)
