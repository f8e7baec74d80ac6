"""The views of brokers, and of what `rmq doctor` finds wrong."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import starmap
from typing import TYPE_CHECKING, Any

from rmqcli.admin.brokers import BrokerRow, list_brokers, show_broker
from rmqcli.admin.doctor.diagnose import diagnose
from rmqcli.admin.lag.memory import departed_brokers
from rmqcli.cli.broker import COLUMNS
from rmqcli.cli.monitoring.cluster import TABLE_COLUMNS
from rmqcli.cli.monitoring.doctor import finding_json
from rmqcli.cli.top.view import View, clock_time
from rmqcli.cli.ui.output import Column, empty_row, row_of
from rmqcli.dataclass import dataclass
from rmqcli.hint import placed, with_options
from rmqcli.model import MASTER_ID
from rmqcli.units import counted, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.brokers import BrokerDetail
    from rmqcli.admin.doctor.model import Diagnosis
    from rmqcli.admin.lag.memory import SeenBroker
    from rmqcli.api.client import Client
    from rmqcli.cli.ui.output import Row

#: What is wrong with a broker is below the table, where it hides no column.
_BROKERS_COLUMNS = tuple(each for each in TABLE_COLUMNS if each.name != "error")
_FINDING_COLUMNS = (
    Column("status", states={"problem": "bad", "warning": "warn", "unknown": "warn"}),
    Column("check", priority=20),
    Column("subject", shorten=True),
    Column("evidence", shorten=True),
)
_STALE = dict.fromkeys(
    ("in_tps", "out_tps", "send_queue", "pull_queue", "page_cache_lock_ms")
)
_SETTING_COLUMNS = (Column("name"), Column("value", shorten=True))


@dataclass(slots=True, kw_only=True)
class _Brokers:
    rows: list[BrokerRow]
    #: by name, those that were known to an earlier run, and have left
    departed: dict[str, SeenBroker]
    at_ms: int


def _process(broker: BrokerRow) -> tuple[str, int]:
    return broker.broker_name, broker.broker_id


class BrokersView(View):
    """All brokers, as `rmq cluster` shows them."""

    command = ("cluster",)
    columns = _BROKERS_COLUMNS
    stale = _STALE

    def __init__(self) -> None:
        super().__init__("brokers")
        #: name and id -> the broker when it answered last, and when that was
        self._answered: dict[tuple[str, int], tuple[BrokerRow, int]] = {}

    def rows_of(self, found: _Brokers) -> Sequence[Row]:
        listed = {_process(each): self._row(each) for each in found.rows}
        missing = {
            process: f"it answered at {clock_time(answered_ms)}"
            for process, (_, answered_ms) in self._answered.items()
            if process not in listed
        }
        for name, seen in found.departed.items():
            missing[name, MASTER_ID] = seen.last_seen(found.at_ms)
        return [*listed.values(), *starmap(self._row_of_missing, missing.items())]

    def _row(self, broker: BrokerRow) -> dict[str, Any]:
        row = row_of(COLUMNS, broker)
        answered = self._answered.get(_process(broker))
        if broker.error is not None and answered is not None:
            since = clock_time(answered[1])
            row["error"] = f"no answer since {since}: {broker.error.message}"
        return row

    def _row_of_missing(self, process: tuple[str, int], since: str) -> dict[str, Any]:
        """Return the row of a broker that name servers do not list any more."""
        name, broker_id = process
        error = f"not in the list of brokers any more; {since}"
        return empty_row(COLUMNS, broker_name=name, broker_id=broker_id, error=error)

    def key_of(self, row: Row) -> Any:
        return row["broker_name"], row["broker_id"]

    def read(self, client: Client) -> _Brokers:
        found = list_brokers(client)
        errors = [each.error for each in found if each.error is not None]
        if len(errors) == len(found):
            client.raise_if_none_answers(errors)
        return _Brokers(
            rows=found,
            departed=departed_brokers(client, client.cluster_info().brokers),
            at_ms=client.clock.epoch_ms(),
        )

    def take(self, answer: _Brokers) -> None:
        super().take(answer)
        for each in answer.rows:
            if each.error is None:
                self._answered[_process(each)] = each, answer.at_ms

    def intro_of(self, found: _Brokers, row: Row | None) -> Sequence[str]:
        counts = Counter(each.cluster for each in found.rows)
        return [f"{name}: {counted(count, 'broker')}" for name, count in counts.items()]

    def notes_of(self, found: _Brokers) -> Sequence[str]:
        return [
            f"{_BROKERS_COLUMNS[0].text(row)}: {row['error']}"
            for row in self.rows_of(found)
            if row["error"] is not None
        ]

    def open(self, row: Row) -> View:
        return BrokerView(row["broker_name"])


class BrokerView(View):
    """What a broker reports about itself, in RocketMQ's words, and its settings."""

    parts = ("runtime", "settings")
    interval_ms = 5_000

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._name = name

    @property
    def command(self) -> list[str]:
        words = ["broker", "show", *placed(self._name)]
        return with_options(words, ["--settings"] if self.part else [])

    @property
    def columns(self) -> Sequence[Column]:
        if len(self.found or ()) > 1:
            return (Column("broker_id", title="ID"), *_SETTING_COLUMNS)
        return _SETTING_COLUMNS

    def rows_of(self, found: list[BrokerDetail]) -> Sequence[Row]:
        return [
            {"broker_id": each.row.broker_id, "name": name, "value": value}
            for each in found
            for name, value in sorted(
                ((each.settings if self.part else each.runtime) or {}).items()
            )
        ]

    def key_of(self, row: Row) -> Any:
        return row["broker_id"], row["name"]

    def read(self, client: Client) -> list[BrokerDetail]:
        return show_broker(client, self._name)

    def notes_of(self, found: list[BrokerDetail]) -> Sequence[str]:
        notes = []
        for each in found:
            if each.row.error is not None:
                notes.append(f"{each.row.address}: {each.row.error.message}")
            elif self.part and each.settings_error is not None:
                notes.append(f"{each.row.address}: {each.settings_error.message}")
        return notes


class DoctorView(View):
    """What `rmq doctor` finds, the worst first."""

    command = ("doctor",)
    columns = _FINDING_COLUMNS
    interval_ms = 30_000
    late_ms = 10_000

    def __init__(self) -> None:
        super().__init__("doctor")

    def rows_of(self, found: Diagnosis) -> Sequence[Row]:
        return [
            {"check": result.name, **finding_json(finding)}
            for result, finding in found.findings
        ]

    def key_of(self, row: Row) -> Any:
        return row["check"], row["subject"], row["evidence"]

    def read(self, client: Client) -> Diagnosis:
        return diagnose(client)

    def intro_of(self, found: Diagnosis, row: Row | None) -> Sequence[str]:
        at = format_rfc3339(found.at_ms)
        lines = [f"{counted(len(found.results), 'check')} at {at}: {found.status}"]
        if row is not None:
            lines.append(f"{row['subject']}: {row['evidence']}")
            if row["meaning"]:
                lines.append(row["meaning"])
            if row["command"]:
                words = with_options(shlex.split(row["command"]), self.flags)
                lines.append(f"try: {shlex.join(words)}")
        return lines
