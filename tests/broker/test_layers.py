"""The order of the modules in rmqcli.broker, which its docstring promises."""

from __future__ import annotations

import graphlib
from typing import TYPE_CHECKING

from tests.test_layers import PACKAGE, imports_of

if TYPE_CHECKING:
    from pathlib import Path

#: From the lowest to the highest; those of one line may import each other.
ORDER = (
    ("settings", "profiles", "effects", "request", "faults", "fault_file"),
    ("context",),
    ("filter", "message", "state"),
    ("table_json", "dispatch"),
    ("requests",),
    ("handlers",),
    ("core",),
    ("namesrv",),
    ("server",),
    ("cluster",),
)
LEVELS = {name: level for level, names in enumerate(ORDER) for name in names}

BROKER = PACKAGE / "broker"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def broker_imports() -> dict[str, set[str]]:
    """Module -> modules of the broker that it imports, for annotations too."""
    paths = {module_name(path): path for path in BROKER.rglob("*.py")}
    del paths["rmqcli.broker"]  # its docstring only
    return {
        module: {
            imported
            for name, _ in imports_of(path)
            for imported in (name, name.rpartition(".")[0])
            if imported in paths and imported != module
        }
        for module, path in paths.items()
    }


def level_of(module: str) -> int:
    """Of `rmqcli.broker.state.topics` that of `state`."""
    return LEVELS[module.split(".")[2]]


def test_modules_import_only_what_is_below_them():
    upwards = [
        (module, imported)
        for module, found in broker_imports().items()
        for imported in found
        if level_of(imported) > level_of(module)
    ]
    assert upwards == []


def test_no_two_modules_import_each_other():
    """Annotations count: a circle of types is a circle for the reader."""
    order = list(graphlib.TopologicalSorter(broker_imports()).static_order())
    assert len(order) == len(set(order))
