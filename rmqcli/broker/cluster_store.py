"""Where the brokers of a cluster keep their messages: memory, or folders.

One broker has the folder itself, so that it looks like a real broker's; several, and
slaves, have a folder each inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmqcli.store.message_store import MessageStore


def broker_folder(store: Path, *, name: str, broker_id: int, brokers: int) -> Path:
    """The folder of one broker. Raises ConfigError where `store` was made by others.

    That is: one broker's by several, or the other way round; both would start empty.
    """
    own = name if broker_id == 0 else f"{name}-{broker_id}"
    is_single = (store / "commitlog").is_dir()
    if brokers > 1 and is_single:
        raise ConfigError(
            f"folder {store} is that of one broker, not of {brokers}",
            hint="name another folder, or start one broker",
        )
    if brokers > 1 or broker_id:
        return store / own
    inner = sorted(each.parent.name for each in store.glob("broker-?/commitlog"))
    if inner and not is_single:
        raise ConfigError(
            f"folder {store} is that of {len(inner)} brokers, not of one",
            hint=f"start {len(inner)} brokers, or name {store / inner[0]}",
        )
    return store


def store_opener(folder: Path | None) -> Callable[[], MessageStore]:
    """A function that opens the store: each time the same one, when it is in memory."""
    if folder is None:
        from rmqcli.store.memory import MemoryStore

        memory = MemoryStore()
        return lambda: memory
    from rmqcli.store.disk_store import DiskStore

    return lambda: DiskStore(folder)
