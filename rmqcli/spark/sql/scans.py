"""Give each scan of a query its own conditions, in the driver, before the query runs.

Spark's own push-down (`DataSourceReader.pushFilters`) cannot be used: up to 4.3,
PythonDataSourceV2 keeps the partitions of the last scan that was planned, and every
other scan of the same `load()` reads these, too. So a self-join, a union, or a CTE that
is used twice would lose rows without an error.

Instead, Spark is left to compare every row, and this module reads the optimized plan.
Each scan there becomes a scan of a Python data source of its own, which is created with
the conditions of the filter directly above the scan as an option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmqcli.spark.source.filters import conditions_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from rmqcli.spark.source.filters import Condition

#: The option with the conditions of a scan.
CONDITIONS: Final = "conditions"

_SCAN: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonScan"


def narrow_scans(frame: DataFrame) -> DataFrame:
    """Make every scan of a DataFrame read only what its conditions allow.

    Returns the same DataFrame. It must be the one whose rows are fetched, because each
    DataFrame has a plan of its own. Its views must be of `source_of`.
    """
    gateway: Any = frame.sparkSession.sparkContext._gateway  # noqa: SLF001  # has no public name
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # as above
    # A plan may contain a scan in several places, with other filters above it.
    scans: list[tuple[Any, set[Condition]]] = []
    for scan, condition in _scans(plan):
        own = set() if condition is None else set(_conditions(gateway, condition))
        for known, shared in scans:
            if known.equals(scan):
                shared &= own
                break
        else:
            scans.append((scan, own))
    for scan, conditions in scans:
        if conditions:
            _replace_source(gateway, scan, conditions_to_json(conditions))
    return frame


def _scans(root: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401  # objects of the JVM
    """Each place of a scan, with the condition of the filter above it, or None."""
    waiting = [(root, None)]
    while waiting:
        plan, condition = waiting.pop()
        kind = plan.getClass().getSimpleName()
        if kind == "DataSourceV2ScanRelation":
            scan = plan.scan()
            if scan.getClass().getName() == _SCAN:
                yield scan, condition
        waiting += [(each, None) for each in _items(plan.subqueries())]
        below = plan.condition() if kind == "Filter" else None
        waiting += [(each, below) for each in _items(plan.children())]


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
        elif kind in _COMPARISONS:
            yield kind, found.attribute(), _plain(found.value())


_COMPARISONS: Final = (
    "EqualTo",
    "EqualNullSafe",
    "GreaterThan",
    "GreaterThanOrEqual",
    "LessThan",
    "LessThanOrEqual",
)


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


def _replace_source(gateway: Any, scan: Any, conditions: str) -> None:  # noqa: ANN401  # objects of the JVM
    """Replace the data source of a scan by a new one with the conditions as an option.

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
    options.put(CONDITIONS, conditions)
    fields["options"].set(
        scan, jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
    )
    fields["ds"].set(scan, source)


def _items(sequence: Any) -> Iterator[Any]:  # noqa: ANN401  # a Seq of Scala
    return (sequence.apply(index) for index in range(sequence.size()))
