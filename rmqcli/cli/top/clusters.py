"""The view of clusters: the one in use and those of all profiles, side by side.

Each cluster is read as by `rmq cluster`, by a thread and a client of its own, so that
one that does not answer holds up no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmqcli.admin.cluster import read_cluster
from rmqcli.admin.lag.model import GroupState, rank_of
from rmqcli.cli.monitoring.cluster import count_lines, finding_line
from rmqcli.cli.top.feed import Feed
from rmqcli.cli.top.view import View, clock_time
from rmqcli.cli.ui.output import Column, empty_row, number_column
from rmqcli.cli.ui.wording import with_flags
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, TransportError
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.admin.cluster import ClusterSummary
    from rmqcli.api.client import Client
    from rmqcli.cli.top.cluster import NamedCluster
    from rmqcli.cli.top.view import Reads
    from rmqcli.cli.ui.output import Row

_EVERY_MS: Final = 10_000
#: A large cluster is read less often: summing it up takes about 1 ms for each group,
#: which is then a fiftieth of a core.
_MS_A_GROUP: Final = 50
#: A reading that takes longer than this shows that servers keep silent.
_LATE_MS: Final = 10_000
_FINDINGS_SHOWN: Final = 3
_HOUR_MS: Final = 3_600_000

_READING: Final = "reading ..."
_NOT_ASKED: Final = "not asked"
_NOT_READ: Final = "not read"
_NO_ANSWER: Final = "no answer"
#: What a cluster may be said to be, the worst last. Most are the words of the doctor.
_STATUSES: Final = (
    *("ok", _READING, _NOT_ASKED, "unknown", "warning", "problem"),
    *(_NOT_READ, _NO_ANSWER),
)
_COLUMNS: Final = (
    Column("cluster"),
    Column(
        "status",
        states={
            "problem": "bad",
            _NO_ANSWER: "bad",
            _NOT_READ: "bad",
            "warning": "warn",
            "unknown": "warn",
        },
    ),
    number_column("namesrvs", title="NAMESRV", priority=40),
    number_column("brokers", priority=10),
    number_column("topics", priority=30),
    number_column("groups", priority=20),
    Column("states", shorten=True, priority=25),
    number_column("lag", priority=35),
    Column("trouble", shorten=True, priority=5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """What a row shows of a cluster, and the lines about it."""

    row: Mapping[str, object]
    lines: tuple[str, ...]
    at_ms: int
    every_ms: int


def _summary(found: ClusterSummary, namesrvs: int, every_ms: int) -> _Summary:
    findings = found.diagnosis.findings
    silent = sum(result.name == "namesrv-answers" for result, _ in findings)
    up = sum(broker.error is None for broker in found.brokers)
    groups = found.groups or {}
    states = sorted(groups, key=lambda state: -rank_of(GroupState(state)))
    count = str(sum(groups.values())) if found.groups is not None else None
    return _Summary(
        row={
            "status": str(found.diagnosis.status),
            "namesrvs": f"{namesrvs - silent}/{namesrvs}",
            "brokers": f"{up}/{up + len(found.errors)}",
            "topics": None if found.topics is None else found.topics["normal"],
            # A broker that did not answer may have more of them.
            "groups": f"{count}+" if count and "groups" in found.reasons else count,
            "states": ", ".join(f"{groups[state]} {state}" for state in states) or None,
            "lag": found.lag,
            "trouble": finding_line(*findings[0]) if findings else None,
        },
        lines=(
            *(finding_line(*each) for each in findings[:_FINDINGS_SHOWN]),
            *count_lines(found),
        ),
        at_ms=found.at_ms,
        every_ms=every_ms,
    )


class _ClusterView(View):
    """Reads one cluster. It is never shown."""

    interval_ms = _EVERY_MS

    def read(self, client: Client) -> _Summary:
        found = read_cluster(client)
        every_ms = max(_EVERY_MS, sum((found.groups or {}).values()) * _MS_A_GROUP)
        self.interval_ms = every_ms
        return _summary(found, len(set(client.config.namesrv)), every_ms)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The clusters there are, and why there may be others."""

    clusters: Sequence[NamedCluster]
    error: RmqError | None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one cluster answered."""

    name: str
    answer: _Summary | RmqError


class ClustersView(View):
    """All clusters: `first`, the one in use, and the others, which `others` lists.

    What is wrong with a profile is said in its row, and never keeps others from being
    read. `others` may raise RmqError.
    """

    command = ("cluster",)
    columns = _COLUMNS
    interval_ms = _EVERY_MS

    def __init__(
        self, first: NamedCluster, others: Callable[[], Sequence[NamedCluster]] = tuple
    ) -> None:
        super().__init__("clusters")
        self.sorts = {
            "status": lambda row: (-_STATUSES.index(row["status"]), row["cluster"]),
            "cluster": lambda row: row["cluster"],
            "lag": lambda row: (-(row["lag"] or 0), row["cluster"]),
        }
        self._first = first
        self._others = others
        self._clusters: dict[str, NamedCluster] = {}
        #: why not all of them may be listed
        self._error: RmqError | None = None
        #: by name: the last answer, and the error since then
        self._found: dict[str, _Summary] = {}
        self._errors: dict[str, RmqError] = {}
        #: by name, what reads it; replaced as a whole by the thread that reads the view
        self._feeds: Mapping[str, Feed] = {}

    def command_for(self, row: Row | None) -> list[str]:
        flags = () if row is None else self._clusters[row["cluster"]].flags
        return [*self.command, *flags]

    def rows(self) -> Sequence[Row]:
        return [self._row(each) for each in self._clusters.values()]

    def _row(self, cluster: NamedCluster) -> dict[str, Any]:
        name = cluster.name
        row = empty_row(_COLUMNS, cluster=name)
        found, error = self._found.get(name), self._errors.get(name)
        feed = self._feeds.get(name)
        since = "" if found is None else f" since {clock_time(found.at_ms)}"
        if error is not None:
            is_silent = isinstance(error, TransportError)
            row["status"] = status = _NO_ANSWER if is_silent else _NOT_READ
            message = with_flags(error.message, cluster.flags)
            row["trouble"] = f"{status}{since}: {message}" if since else message
        elif cluster.asks and not cluster.is_loaded:
            row["status"] = _NOT_ASKED
            row["trouble"] = "enter runs the command that prints its credentials"
        elif feed is not None and feed.late_ms > _LATE_MS:
            row["status"], row["trouble"] = _NO_ANSWER, f"{_NO_ANSWER}{since}"
        elif found is None:
            row["status"] = _READING
        else:
            row |= found.row
        return row

    def key_of(self, row: Row) -> Any:
        return row["cluster"]

    def run(self, feed: Reads) -> None:
        error = None
        clusters = [self._first]
        try:
            clusters += self._others()
        except RmqError as failed:
            error = failed
        known = {(each.name, each.servers): each for each in self._clusters.values()}
        for index, each in enumerate(clusters):
            before = known.get((each.name, each.servers))
            if each.asks and before is not None and before.is_loaded:
                clusters[index] = before  # the user is not asked again
        feed.post(_Listed(clusters, error))
        feeds: dict[str, Feed] = {}
        try:
            for each in clusters:
                if each.is_loaded or not each.asks:
                    self._begin(each, feed, feeds)
            self._feeds = feeds
            while True:
                feed.pause(_HOUR_MS)
                for reader in feeds.values():
                    reader.refresh()
        finally:
            for reader in feeds.values():
                reader.close()
            for reader in feeds.values():
                reader.wait()

    def _begin(
        self, cluster: NamedCluster, feed: Reads, feeds: dict[str, Feed]
    ) -> None:
        """Begin to read a cluster; post the error of one that cannot be."""
        name = cluster.name
        try:
            config = cluster.config()
        except RmqError as error:
            feed.post(_Answer(name, error))
            return
        reader = Feed(
            _ClusterView(name),
            config,
            lambda _reader, answer: feed.post(_Answer(name, answer)),  # type: ignore[arg-type]  # what it reads
        )
        reader.start()
        feeds[name] = reader

    def take(self, answer: _Listed | _Answer) -> None:
        if isinstance(answer, _Listed):
            self._clusters = {each.name: each for each in answer.clusters}
            self._error = answer.error
            for known in (self._found, self._errors):
                for name in known.keys() - self._clusters.keys():
                    known.pop(name)
        elif isinstance(answer.answer, RmqError):
            self._errors[answer.name] = answer.answer
        else:
            self._errors.pop(answer.name, None)
            self._found[answer.name] = answer.answer

    def fail(self, cluster: NamedCluster, error: RmqError) -> None:
        """Show why a cluster cannot be opened."""
        self._errors[cluster.name] = error

    def intro(self, row: Row | None) -> Sequence[str]:
        if row is None:
            return ()
        cluster = self._clusters[row["cluster"]]
        found, error = self._found.get(cluster.name), self._errors.get(cluster.name)
        parts = [each for each in (cluster.servers, cluster.rule) if each]
        if found is not None and row["status"] not in (_NO_ANSWER, _NOT_READ):
            at = f"read at {clock_time(found.at_ms)}"
            parts.append(f"{at}, every {format_duration(found.every_ms)}")
            return [f"{cluster.name}: {'; '.join(parts)}", *found.lines]
        lines = [f"{cluster.name}: {'; '.join(parts)}"] if parts else []
        if row["trouble"]:
            lines.append(row["trouble"])
        if error is not None and row["status"] == _NOT_READ and error.hint:
            lines.append(with_flags(error.hint, cluster.flags))
        return lines

    def notes(self) -> Sequence[str]:
        return () if self._error is None else [f"profiles: {self._error.message}"]

    def open(self, row: Row) -> NamedCluster:
        return self._clusters[row["cluster"]]
