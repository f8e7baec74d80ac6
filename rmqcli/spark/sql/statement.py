"""Find the topics that a statement reads, and refuse statements that do not only read.

Spark's own parser parses the statement. Its tree is walked, including subqueries and
common table expressions. A name that a WITH clause defines is not a topic where it is
in scope.

Source: AstBuilder, UnresolvedRelation, UnresolvedWith, CTESubstitution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical"
#: Plans that change something or are not queries.
_NOT_QUERIES: Final = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
_HAS_PLAN: Final = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
_RELATIONS: Final = ("UnresolvedRelation", "UnresolvedTableOrView")
_HINT: Final = "write SELECT, WITH, VALUES, EXPLAIN or DESCRIBE"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and the topics that it reads.

    `topics` lists each topic once, in the order of first use.
    """

    text: str
    topics: tuple[str, ...]
    is_explain: bool = False


def read_statement(spark: SparkSession, text: str) -> Statement:
    """Parse a statement. Raises UsageError when it is not a query.

    Two topics whose names differ only in case are refused, because Spark ignores case
    in the names of views. Raises Spark's own error for a statement that Spark cannot
    parse.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001  # PySpark has no parser of its own
    walk = _Walk(spark)
    kind = _kind(plan)
    is_explain = kind == "ExplainCommand"
    if not is_explain and not kind.startswith("Describe"):
        walk.check(plan, text)
    names = dict.fromkeys(walk.relations(plan, frozenset(), text))
    topics = tuple(_topic(parts) for parts in names)
    folded = {topic.lower() for topic in topics}
    if len(folded) < len(topics):
        raise UsageError(
            f"{' and '.join(sorted(topics))} cannot be read by one statement: Spark"
            " treats names that differ only in case as equal",
            hint="read each of them with a statement of its own",
        )
    return Statement(text, topics, is_explain)


def _topic(parts: tuple[str, ...]) -> str:
    if len(parts) != 1:
        raise UsageError(
            f"{'.'.join(parts)} is not a topic",
            hint="name a topic, as in: from orders, or from `my-topic`",
        )
    return parts[0]


class _Walk:
    """Walks the parsed tree in the JVM; each step is a Py4J call."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = spark.sparkContext._gateway  # noqa: SLF001  # for is_instance_of

    def check(self, plan: Any, text: str) -> None:  # noqa: ANN401  # an object of the JVM
        """Raise UsageError for a node that is not part of a query."""
        if any(is_instance_of(self._gateway, plan, each) for each in _NOT_QUERIES):
            words = text.split(maxsplit=1)
            word = words[0].upper() if words and words[0].isalpha() else _kind(plan)
            if word == "WITH":
                word = _kind(plan)
            raise UsageError(f"only queries can be run, not {word}", hint=_HINT)

    def relations(
        self,
        plan: Any,  # noqa: ANN401
        defined: frozenset[str],
        text: str,
    ) -> Iterator[tuple[str, ...]]:
        """Yield the multipart name of each relation that is not in `defined`.

        Raises UsageError when a part of the plan is not part of a query.
        """
        kind = _kind(plan)
        if kind in _RELATIONS:
            parts = tuple(map(str, _each(plan.multipartIdentifier())))
            if len(parts) > 1 or parts[0].lower() not in defined:
                yield parts
            return
        inner = None
        if kind == "ExplainCommand":
            inner = plan.logicalPlan()
        elif kind == "DescribeQueryCommand":
            inner = plan.plan()
        if inner is not None:
            self.check(inner, "")
            yield from self.relations(inner, defined, text)
            return
        if kind == "UnresolvedWith":
            for pair in _each(plan.cteRelations()):
                name = str(pair._1()).lower()  # noqa: SLF001  # Scala's name
                inside = defined | {name} if plan.allowRecursion() else defined
                yield from self.relations(pair._2(), inside, text)  # noqa: SLF001
                defined |= {name}
        for expression in _each(plan.expressions()):
            yield from self._of_expression(expression, defined, text)
        for child in _each(plan.children()):
            if not kind.startswith("Describe"):
                self.check(child, text)
            yield from self.relations(child, defined, text)

    def _of_expression(
        self,
        expression: Any,  # noqa: ANN401
        defined: frozenset[str],
        text: str,
    ) -> Iterator[tuple[str, ...]]:
        if is_instance_of(self._gateway, expression, _HAS_PLAN):
            yield from self.relations(expression.plan(), defined, text)
        for child in _each(expression.children()):
            yield from self._of_expression(child, defined, text)


def _kind(node: Any) -> str:  # noqa: ANN401
    return str(node.getClass().getSimpleName())


def _each(sequence: Any) -> Iterator[Any]:  # noqa: ANN401
    """The elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
