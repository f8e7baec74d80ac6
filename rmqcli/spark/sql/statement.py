"""Find the topics that a statement reads, and refuse statements that do not only read.

Spark's own parser parses the statement, which runs nothing. Its tree is walked,
including subqueries and common table expressions, and each part has to be in
`_ALLOWED`: a list of what is refused would have to know everything that Spark can do,
now and in later versions. The same holds for the tree after Spark has analysed it. A
name that a WITH clause defines is not a topic where it is in scope.

Functions are the other way to do something else than to compute. `close_session` takes
the ones that can out of the session, so that no way of writing their name calls them.

Source: AstBuilder, UnresolvedRelation, UnresolvedWith, CTESubstitution,
FunctionRegistry, TableFunctionRegistry.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of

from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError
from rmqcli.spark.sql.guess import QUERIES_HINT
from rmqcli.spark.sql.scans import items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_CATALYST: Final = "org.apache.spark.sql.catalyst"
_EXECUTION: Final = "org.apache.spark.sql.execution"
_COMMANDS: Final = f"{_EXECUTION}.command"
_HAS_PLAN: Final = f"{_CATALYST}.expressions.PlanExpression"

#: The parts of a query, by package, before and after Spark's analysis.
_QUERIES: Final = {
    f"{_CATALYST}.plans.logical": (
        "Aggregate AsOfJoin CTERelationDef CTERelationRef Deduplicate Distinct Except"
        " Expand Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll"
        " LocalLimit LocalRelation NearestByJoin Offset OneRowRelation Pivot"
        " Project Range RebalancePartitions Repartition"
        " RepartitionByExpression ResolvedHint Sample Sort SubqueryAlias Tail Transpose"
        " Union UnionLoop UnionLoopRef Unpivot UnresolvedHint UnresolvedWith View"
        " Window WithCTE WithWindowDefinition"
    ),
    f"{_CATALYST}.analysis": (
        "ResolvedInlineTable UnresolvedHaving UnresolvedInlineTable UnresolvedQualify"
        " UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases"
        " UnresolvedTableValuedFunction"
    ),
    f"{_CATALYST}.expressions": "PipeOperator",
    f"{_EXECUTION}.datasources.v2": "DataSourceV2Relation",
}
#: The statements about a query, a topic or a function, and what they name.
_DESCRIPTIONS: Final = {
    f"{_CATALYST}.plans.logical": "DescribeColumn DescribeFunction DescribeRelation",
    f"{_CATALYST}.analysis": "UnresolvedFunctionName UnresolvedTableOrView",
    _COMMANDS: "DescribeQueryCommand DescribeRelationJsonCommand ExplainCommand",
}
_ALLOWED: Final = frozenset(
    f"{package}.{name}"
    for kinds in (_QUERIES, _DESCRIPTIONS)
    for package, names in kinds.items()
    for name in names.split()
)
_RELATIONS: Final = ("UnresolvedRelation", "UnresolvedTableOrView")
_TABLE_FUNCTIONS: Final = (
    "collations",
    "explode",
    "explode_outer",
    "inline",
    "inline_outer",
    "json_tuple",
    "posexplode",
    "posexplode_outer",
    "range",
    "sql_keywords",
    "stack",
    "variant_explode",
    "variant_explode_outer",
)
#: The functions that do not only compute: they call Java, or read files or logs.
OUTSIDE: Final = (
    "from_protobuf",
    "input_file_block_length",
    "input_file_block_start",
    "input_file_name",
    "java_method",
    "python_worker_logs",
    "reflect",
    "to_protobuf",
    "try_reflect",
)
#: The position of the options of functions that have one which names a file.
_XML_OPTIONS: Final = {"from_xml": 2, "schema_of_xml": 1}
_XML_FILE: Final = "rowvalidationxsdpath"
#: The settings of Java's XML parser, with which `xpath` opens no file and no address
#: that a document names.
_XML_CLOSED: Final = ("javax.xml.accessExternalDTD", "javax.xml.accessExternalSchema")

#: How a statement writes the parts that are not called like their words.
_WRITTEN: Final = {
    "CompoundBody": "BEGIN ... END",
    "CreateFunctionCommand": "CREATE FUNCTION",
    "InsertIntoDir": "INSERT OVERWRITE DIRECTORY",
    "InsertIntoStatement": "INSERT",
    "NamedStreamingRelation": "STREAM",
    "RelationTimeTravel": "VERSION AS OF",
    "ScriptTransformation": "TRANSFORM ... USING",
    "UnresolvedInsert": "INSERT",
}
_NAME_HINT: Final = "name a topic, as in: from orders, or from `my-topic`"
_FUNCTIONS_HINT: Final = (
    "use functions that only compute from columns, such as upper, from_json or count"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and the topics that it reads.

    `topics` lists each topic once, in the order of first use. `query` is the parsed
    query that runs or that is explained, an object of the JVM; None when there is none.
    """

    text: str
    topics: tuple[str, ...]
    is_explain: bool = False
    query: Any = None


def close_session(spark: SparkSession) -> None:
    """Take everything out of a session with which a query could reach outside of it."""
    jvm = spark._jvm  # noqa: SLF001  # PySpark offers no other way to it
    state = spark._jsparkSession.sessionState()  # noqa: SLF001
    some = jvm.scala.Option.apply
    name_of = getattr(jvm, f"{_CATALYST}.FunctionIdentifier")
    space = (some("builtin"), some("system"))
    functions = state.functionRegistry()
    # Since Spark 4.2 the names of the registry are qualified.
    is_qualified = functions.dropFunction(name_of(OUTSIDE[-1], *space))
    for name in OUTSIDE:
        identifier = name_of(name, *space) if is_qualified else name_of(name)
        functions.dropFunction(identifier)
        state.tableFunctionRegistry().dropFunction(identifier)
    for setting in _XML_CLOSED:
        jvm.System.setProperty(setting, "")
    # To find data sources, Spark would start Python to import each package whose name
    # begins with pyspark_.
    sources = jvm.org.apache.spark.sql.execution.datasources
    manager = getattr(getattr(sources, "DataSourceManager$"), "MODULE$")  # an object
    none = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    getattr(manager, "dataSourceBuilders_$eq")(some(none))


def read_statement(spark: SparkSession, text: str) -> Statement:
    """Parse a statement. Raises UsageError when it does not only read.

    Two topics whose names differ only in case are refused, because Spark ignores case
    in the names of views. Raises Spark's own error for a statement that Spark cannot
    parse.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001  # PySpark has no parser of its own
    names = dict.fromkeys(_Walk(spark).relations(plan, frozenset()))
    topics = tuple(_topic(parts) for parts in names)
    folded = {topic.lower() for topic in topics}
    if len(folded) < len(topics):
        raise UsageError(
            f"{' and '.join(sorted(topics))} cannot be read by one statement: Spark"
            " treats names that differ only in case as equal",
            hint="read each of them with a statement of its own",
        )
    kind = _kind(plan)
    is_explain = kind == "ExplainCommand"
    query = plan.logicalPlan() if is_explain else plan
    if kind.startswith("Describe"):
        query = None
    return Statement(text, topics, is_explain, query)


def check_analysed(spark: SparkSession, plan: Any) -> None:  # noqa: ANN401  # an object of the JVM
    """Raise UsageError when Spark's analysis of a query has a part that is refused."""
    for _ in _Walk(spark).relations(plan, frozenset()):
        pass


def _topic(parts: tuple[str, ...]) -> str:
    if len(parts) != 1:
        raise UsageError(f"{'.'.join(parts)} is not a topic", hint=_NAME_HINT)
    return parts[0]


class _Walk:
    """Walks a tree in the JVM; each step is a Py4J call.

    Each method raises UsageError for a part that is not allowed.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = spark.sparkContext._gateway  # noqa: SLF001  # for is_instance_of

    def relations(
        self,
        plan: Any,  # noqa: ANN401  # an object of the JVM
        defined: frozenset[str],
        *,
        is_inside: bool = False,
    ) -> Iterator[tuple[str, ...]]:
        """Yield the multipart name of each relation that is not in `defined`."""
        kind = _kind(plan)
        name = str(plan.getClass().getName()).removesuffix("$")
        if name not in _ALLOWED or (is_inside and name.startswith(_COMMANDS)):
            raise UsageError(
                f"only queries can be run, not {_words(kind)}", hint=QUERIES_HINT
            )
        if kind in _RELATIONS:
            yield from self._relation(plan, kind, defined)
            return
        if kind == "UnresolvedTableValuedFunction":
            self._table_function(".".join(map(str, items(plan.name()))))
        inner = None
        if kind == "ExplainCommand":
            inner = plan.logicalPlan()
        elif kind == "DescribeQueryCommand":
            inner = plan.plan()
        if inner is not None:
            yield from self.relations(inner, defined, is_inside=True)
            return
        if kind == "UnresolvedWith":
            for pair in items(plan.cteRelations()):
                name = str(pair._1()).lower()  # noqa: SLF001  # Scala's name
                inside = defined | {name} if plan.allowRecursion() else defined
                yield from self.relations(pair._2(), inside, is_inside=True)  # noqa: SLF001
                defined |= {name}
        for expression in _expressions(plan, kind):
            yield from self._of_expression(expression, defined)
        for child in items(plan.children()):
            yield from self.relations(child, defined, is_inside=True)

    def _relation(
        self,
        plan: Any,  # noqa: ANN401
        kind: str,
        defined: frozenset[str],
    ) -> Iterator[tuple[str, ...]]:
        parts = tuple(map(str, items(plan.multipartIdentifier())))
        if kind == "UnresolvedRelation":
            if plan.isStreaming():
                raise UsageError(
                    "only queries can be run, not STREAM", hint=QUERIES_HINT
                )
            if not plan.options().isEmpty():
                raise UsageError(
                    f"{'.'.join(parts)} has options, which the tables of a query cannot"
                    " have",
                    hint=_NAME_HINT,
                )
        if len(parts) > 1 or parts[0].lower() not in defined:
            yield parts

    def _table_function(self, name: str) -> None:
        if name.lower() in OUTSIDE:
            raise _outside(name)
        if name.lower() not in _TABLE_FUNCTIONS:
            raise UsageError(
                f"{name} is not a table function that a query can use",
                hint=f"use one of {', '.join(_TABLE_FUNCTIONS)}",
            )

    def _of_expression(
        self,
        expression: Any,  # noqa: ANN401
        defined: frozenset[str],
    ) -> Iterator[tuple[str, ...]]:
        kind = _kind(expression)
        if kind == "UnresolvedFunction":
            self._function(expression)
        elif kind == "ExpressionWithUnresolvedIdentifier":
            raise UsageError(
                "only queries can be run, not IDENTIFIER", hint="write the name itself"
            )
        if is_instance_of(self._gateway, expression, _HAS_PLAN):
            yield from self.relations(expression.plan(), defined, is_inside=True)
        for child in items(expression.children()):
            yield from self._of_expression(child, defined)

    def _function(self, call: Any) -> None:  # noqa: ANN401
        name = [str(each) for each in items(call.nameParts())][-1].lower()
        if name in OUTSIDE:
            raise _outside(name)
        if name not in _XML_OPTIONS:
            return
        arguments = list(items(call.arguments()))
        for given in arguments[_XML_OPTIONS[name] :]:
            texts = [str(each).lower() for each in items(given.children())]
            is_literal = all(
                _kind(each) == "Literal" for each in items(given.children())
            )
            if not is_literal or _XML_FILE in texts:
                raise UsageError(
                    f"the options of {name} have to be literals without"
                    " rowValidationXSDPath, which reads a file",
                    hint="write them as in: map('timestampFormat', 'dd/MM/yyyy')",
                )


def _outside(name: str) -> UsageError:
    return UsageError(
        f"the function {name} is not allowed: it reaches outside of the query",
        hint=_FUNCTIONS_HINT,
    )


def _words(kind: str) -> str:
    """How a statement writes a part of a plan, as far as the part's name tells."""
    kind = _WRITTEN.get(kind, kind)
    if " " in kind:
        return kind
    name = re.sub(r"^Unresolved|^PlanWithUnresolved|(Command|Statement)$", "", kind)
    return " ".join(re.findall(r"[A-Z]+[a-z]*", name)).upper()


def _expressions(plan: Any, kind: str) -> Iterator[Any]:  # noqa: ANN401
    yield from items(plan.expressions())
    if kind == "WithWindowDefinition":
        # Spark does not count them among the expressions, as they are in a map.
        yield from items(plan.windowDefinitions().values().toSeq())


def _kind(node: Any) -> str:  # noqa: ANN401
    return str(node.getClass().getSimpleName()).removesuffix("$")
