"""The imports of a package, read from its source, and the circles among them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One name that a module imports.

    `name` is dotted and ends in what was imported (`rmqcli.wire.ids.decode_offset`).
    `at_import` is false inside functions and below `if TYPE_CHECKING`.
    """

    name: str
    at_import: bool


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, its path and what it imports."""

    name: str
    path: Path
    tree: ast.Module
    imports: tuple[Import, ...] = field(default=())

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    @property
    def where(self) -> str:
        """The path below the package's parent, with slashes."""
        return "/".join(self.path.parts[-len(self.name.split(".")) - 1 :])


def read_package(package: Path) -> list[Module]:
    """Every module below `package`, sorted by path."""
    return [read_module(path, package) for path in sorted(package.rglob("*.py"))]


def read_module(path: Path, package: Path) -> Module:
    """Read one file of the package."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Module(".".join(parts), path, tree, tuple(_imports(tree, path)))


def _imports(tree: ast.Module, path: Path) -> Iterator[Import]:
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, at_import = waiting.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, at_import)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                yield Import(f"{node.module}.{alias.name}", at_import)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            at_import = False
        waiting += [
            (child, at_import)
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.expr)  # expressions contain no imports
        ]


def circles(modules: Iterable[Module]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or indirectly.

    Imports for type checkers count, too.

    Source: Tarjan's algorithm for strongly connected components.
    """
    names = {module.name: module for module in modules}
    graph: dict[str, set[str]] = {}
    for name, module in names.items():
        graph[name] = set()
        for each in module.imports:
            target = each.name if each.name in names else each.name.rpartition(".")[0]
            if target in names and target != name:
                graph[name].add(target)
    return [found for found in _components(graph) if len(found) > 1]


def _components(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            name, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in stack:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    found = set(stack[stack.index(name) :])
                    del stack[stack.index(name) :]
                    yield found
