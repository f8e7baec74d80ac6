"""Give each scan of a query its own conditions and columns, before the query runs.

Spark's own push-down (`DataSourceReader.pushFilters`) cannot be used: up to 4.3,
PythonDataSourceV2 keeps the partitions of the last scan that was planned, and every
other scan of the same `load()` reads these, too. So a self-join, a union, or a CTE that
is used twice would lose rows without an error.

Instead, Spark is left to compare every row, and this module reads the optimized plan.
Each scan there becomes a scan of a Python data source of its own, which is created with
the conditions of the filter directly above the scan as an option.

The columns that the scan uses are another option. Spark has no way to tell a Python
data source about them, but its optimizer puts a projection above each scan of which
some columns are not used. The other columns stay in the plan and are null, and nothing
above reads them. A scan without a projection or an aggregation above it uses all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.spark.source.filters import COMPARISONS, conditions_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from rmqcli.spark.source.filters import Condition

#: The options with the conditions of a scan, and with the columns that it uses.
CONDITIONS: Final = "conditions"
COLUMNS: Final = "columns"

_SCAN: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonScan"


def narrow_scans(frame: DataFrame) -> DataFrame:
    """Make every scan of a DataFrame read only what it needs.

    Returns the same DataFrame. It must be the one whose rows are fetched, because each
    DataFrame has a plan of its own. Its views must be of `source_of`.
    """
    gateway: Any = frame.sparkSession.sparkContext._gateway  # noqa: SLF001  # has no public name
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # as above
    # A plan may contain a scan in several places, with other parts above it.
    scans: list[_Scan] = []
    for place in _places(gateway, plan):
        known = next((each for each in scans if each.scan.equals(place.scan)), None)
        if known is None:
            scans.append(place)
            continue
        known.conditions &= place.conditions
        if known.columns is None or place.columns is None:
            known.columns = None
        else:
            known.columns |= place.columns
    for each in scans:
        options = {}
        if each.conditions:
            options[CONDITIONS] = conditions_to_json(each.conditions)
        if each.columns is not None:
            options[COLUMNS] = json.dumps(sorted(each.columns))
        if options:
            _replace_source(gateway, each.scan, options)
    return frame


@dataclass(slots=True)
class _Scan:
    """A scan, an object of the JVM, and what is above it where it stands in the plan.

    `columns` are the names of the columns that are used, None for all.
    """

    scan: Any
    conditions: set[Condition]
    columns: set[str] | None


def _places(gateway: Any, root: Any) -> Iterator[_Scan]:  # noqa: ANN401  # objects of the JVM
    """Each place of a scan."""
    # A part of the plan, the condition of the filter above it, and the attributes that
    # are used of it: each may be None.
    waiting: list[tuple[Any, Any, Any]] = [(root, None, None)]
    while waiting:
        plan, condition, used = waiting.pop()
        kind = plan.getClass().getSimpleName()
        if kind == "DataSourceV2ScanRelation":
            scan = plan.scan()
            if scan.getClass().getName() == _SCAN:
                columns = None
                if used is not None:
                    attributes = plan.outputSet().intersect(used).toSeq()
                    columns = {each.name() for each in items(attributes)}
                found = () if condition is None else _conditions(gateway, condition)
                yield _Scan(scan, set(found), columns)
        waiting += [(each, None, None) for each in items(plan.subqueries())]
        below = None
        match kind:
            case "Project" | "Aggregate":
                used = plan.references()
            case "Filter":
                below = plan.condition()
                if used is not None:
                    used = getattr(used, "$plus$plus")(plan.references())
            case _:
                used = None
        waiting += [(each, below, used) for each in items(plan.children())]


def _conditions(gateway: Any, condition: Any) -> Iterator[Condition]:  # noqa: ANN401  # objects of the JVM
    """The comparisons of a column with a value that `AND` joins in a condition."""
    sources = gateway.jvm.org.apache.spark.sql.execution.datasources
    strategy = getattr(getattr(sources, "DataSourceStrategy$"), "MODULE$")  # an object
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if part.getClass().getSimpleName() == "And":
            waiting += [part.left(), part.right()]
            continue
        translated = strategy.translateFilter(part, False)
        if translated.isEmpty():
            continue
        found = translated.get()
        kind = found.getClass().getSimpleName()
        if kind == "In":
            values = tuple(map(_plain, found.values()))
            yield kind, found.attribute(), values
        elif kind in COMPARISONS:
            yield kind, found.attribute(), _plain(found.value())


def _plain(value: Any) -> int | str | None:  # noqa: ANN401  # an object of the JVM
    """A value as it is in a Condition; None when it is of another type."""
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    match getattr(value, "getClass", lambda: None)() and value.getClass().getName():
        case "java.sql.Timestamp":
            return int(value.getTime())
        case "java.time.Instant":
            return int(value.toEpochMilli())
    return None


def _replace_source(gateway: Any, scan: Any, own: dict[str, str]) -> None:  # noqa: ANN401  # objects of the JVM
    """Replace the data source of a scan by a new one that has these options, too.

    Nothing public does this. Without these fields, the scan reads the whole range.
    """
    jvm = gateway.jvm
    fields = {each.getName(): each for each in scan.getClass().getDeclaredFields()}
    if not fields.keys() >= {"ds", "shortName", "options"}:
        return
    for each in fields.values():
        each.setAccessible(True)
    source = (
        jvm.org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2()
    )
    source.setShortName(fields["shortName"].get(scan))
    options = jvm.java.util.HashMap(fields["options"].get(scan).asCaseSensitiveMap())
    for name, value in own.items():
        options.put(name, value)
    fields["options"].set(
        scan, jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
    )
    fields["ds"].set(scan, source)


def items(sequence: Any) -> Iterator[Any]:  # noqa: ANN401  # objects of the JVM
    """Return the elements of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))
