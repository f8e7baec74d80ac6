"""The commands that findings suggest can be pasted, whatever a peer is called."""

from __future__ import annotations

import ast
from pathlib import Path

from rmqcli.admin.doctor import checks
from rmqcli.admin.doctor.model import command_line


def test_names_in_a_command_are_quoted():
    assert command_line("rmq", "broker", "show", "a; reboot") == (
        "rmq broker show 'a; reboot'"
    )


def test_no_check_puts_a_name_into_a_command_by_itself():
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(checks.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        and ast.unparse(node).startswith(("f'rmq ", "f'mqadmin ", 'f"rmq '))
    ]
    assert found == []
