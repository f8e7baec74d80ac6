"""What `rmq top` knows of a cluster that it can show: how to reach and to name it."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.config import ClientConfig


@dataclass(slots=True, kw_only=True, eq=False)
class NamedCluster:
    """The cluster that the command line names, or that of a profile.

    `load` reads the credentials and returns how to reach the cluster. It raises
    RmqError for a profile that cannot be used. No text here has a secret.
    """

    #: the name of the profile, or the addresses of the name servers
    name: str
    #: how the first line of the screen names it
    title: str
    load: Callable[[], ClientConfig]
    #: the name servers, as in `namesrv a:9876;b:9876`; empty where they are not known
    servers: str = ""
    #: options with which commands reach it
    flags: tuple[str, ...] = ()
    allow_changes: bool = False
    #: what its profile says of changes: "read-only", "protected", or nothing
    rule: str = ""
    #: whether `load` runs a command of the user, which may ask on the terminal
    asks: bool = False
    _config: ClientConfig | None = field(default=None, init=False, repr=False)

    @property
    def is_loaded(self) -> bool:
        return self._config is not None

    def config(self) -> ClientConfig:
        """Return how to reach it, which is loaded once. Raises RmqError."""
        if self._config is None:
            self._config = self.load()
        return self._config
