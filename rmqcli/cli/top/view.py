"""What a view of `rmq top` is: the rows of one subject, and how they are read.

A view is read by the thread of a `rmqcli.cli.top.feed.Feed` and shown by the screen's:
`run` reads, and calls nothing of the screen but `post`; `take` receives what was
posted, in the thread of the screen, as does everything else. Rows and columns are those
of the command that prints the same, which each view names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rmqcli.cli.ui.wording import with_flags
from rmqcli.hint import with_options
from rmqcli.units import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from rmqcli.api.client import Client
    from rmqcli.cli.top.cluster import NamedCluster
    from rmqcli.cli.ui.output import Column, Row

#: A reading that takes longer than this shows that servers keep silent.
LATE_MS = 2_000


def clock_time(at_ms: int) -> str:
    """Return the time of day, in UTC."""
    return f"{(format_rfc3339(at_ms) or '')[11:19]}Z"


def refresh(client: Client) -> None:
    """Ask for brokers and routes anew: a command that runs on must not keep them."""
    client.cluster_info(refresh=True)
    for topic in client.known_routes.topics():
        client.forget(topic)


class Reads(Protocol):
    """What a view that is being read may use of its feed."""

    @property
    def client(self) -> Client:
        """The client of the feed, which no other thread uses."""

    def begin(self) -> None:
        """Say that servers are asked now; until `post`, their answers are late."""

    def post(self, answer: object) -> None:
        """Hand an answer, or an RmqError, to the screen."""

    def pause(self, duration_ms: int) -> None:
        """Wait, or until the view is wanted sooner."""

    def check(self) -> None:
        """Raise `Closed` when the view is not wanted any more."""


class ViewKey(NamedTuple):
    """A key of a view: what it does, in one word, and the view or question it opens."""

    label: str
    action: Callable[[Row | None], View | Question | None]
    #: whether it changes the cluster
    changes: bool = False


class Question(NamedTuple):
    """A question whose answer the user types in the last line."""

    text: str
    answered: Callable[[str], View | Question | None]
    default: str = ""


class View:
    """The rows of one subject.

    A view has `command`, `columns` and `stale` as properties, or as attributes of its
    class if they are always the same. `parts` are the names of its tables, of which
    `part` is shown. Sorting is by one of `sorts`, functions by name that return the key
    of a row; the first is the default.

    Most views keep the last answer as `found`, and define `rows_of`, `intro_of` and
    `notes_of`, which are asked from the first answer on.
    """

    #: what was read last; None before that
    found: Any = None

    #: what stands in the place of a table without rows
    none = "none"
    interval_ms: int | None = 2_000
    late_ms: int = LATE_MS
    parts: Sequence[str] = ()

    def __init__(self, title: str) -> None:
        self.title = title
        self.sorts: Mapping[str, Callable[[Row], Any]] = {}
        self.keys: Mapping[str, ViewKey] = {}
        self.part = 0
        #: options that a command needs to reach the same cluster; set by the screen
        self.flags: tuple[str, ...] = ()
        #: cells of a line; set by the screen
        self.width = 80
        #: keys of the rows that are on the screen; set by the screen
        self.on_screen: tuple[Hashable, ...] = ()

    @property
    def stale(self) -> Mapping[str, object]:
        """What rows show instead of what they had, while a reading is out of date."""
        return {}

    @property
    def command(self) -> Sequence[str]:
        """The words of the command that prints the same, after `rmq`."""
        raise NotImplementedError

    def command_for(self, row: Row | None) -> list[str]:
        """Return `command` with what reaches the cluster; `row` is the chosen one."""
        return with_options(self.command, self.flags)

    def worded(self, text: str) -> str:
        """Return an error or a hint whose commands reach the same cluster."""
        return with_flags(text, self.flags)

    @property
    def columns(self) -> Sequence[Column]:
        raise NotImplementedError

    def rows(self) -> Sequence[Row]:
        """Return the rows of the part that is shown, as they were read last."""
        return () if self.found is None else self.rows_of(self.found)

    def rows_of(self, found: Any) -> Sequence[Row]:
        """Return the rows of an answer."""
        raise NotImplementedError

    def key_of(self, row: Row) -> Any:
        """Return what a row is about, which stays the same in the next reading."""
        raise NotImplementedError

    def run(self, feed: Reads) -> None:
        """Read until the feed is closed. RmqErrors are posted, and it is read again."""
        from rmqcli.errors import RmqError

        while True:
            feed.begin()
            try:
                refresh(feed.client)
                feed.post(self.read(feed.client))
            except RmqError as error:
                feed.post(error)
            if self.interval_ms is None:
                return
            feed.pause(self.interval_ms)

    def read(self, client: Client) -> object:
        """Read once, in the thread of the feed."""
        raise NotImplementedError

    def take(self, answer: Any) -> None:
        """Keep what was read."""
        self.found = answer

    def intro(self, row: Row | None) -> Sequence[str]:
        """Return the lines above the table; `row` is the chosen one."""
        return () if self.found is None else self.intro_of(self.found, row)

    def intro_of(self, found: Any, row: Row | None) -> Sequence[str]:
        """Return the lines above the table of an answer."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return warnings, such as brokers that did not answer."""
        return () if self.found is None else self.notes_of(self.found)

    def notes_of(self, found: Any) -> Sequence[str]:
        """Return the warnings of an answer."""
        return ()

    def open(self, row: Row) -> View | NamedCluster | None:
        """Return the view or cluster that a row is about; None if there is none."""
        return None

    def next_part(self) -> None:
        """Show the next table."""
        if self.parts:
            self.part = (self.part + 1) % len(self.parts)
