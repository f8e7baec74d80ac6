"""The commands that findings suggest can be pasted, whatever a peer is called."""

from __future__ import annotations

import ast
from pathlib import Path

from rmqcli.admin.doctor import checks
from tests.admin.doctor.planting import is_command
from tests.kit.rows import each_row

#: In place of a name, an address or a client id that a check puts into a command; a
#: number is 1.
NAME = "10.0.0.1:9876"


def text_of(node):
    """Return a text in the source of a check, with NAME for each value in it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(text_of, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.Call(func=ast.Name(id="command_line"), args=words, keywords=more):
            lists = [each.value for each in more if isinstance(each.value, ast.List)]
            options = [word for each in lists for word in each.elts]
            return " ".join(map(text_of, [*words, *options]))
        case ast.Call(func=ast.Name(id="str")):
            return "1"
    return NAME


def texts():
    """Return the texts in the checks, by module and line."""
    found: dict[tuple[str, int], list[str]] = {}
    for path in sorted(Path(checks.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [n for n in ast.walk(tree) if text_of(n).startswith("rmq ")]
        parts = {part for call in calls for part in [*ast.walk(call)][1:]}
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and node not in parts:
                found.setdefault((path.stem, node.lineno), []).append(text_of(node))
    return found


#: The first text of a line that is a command of rmq.
SUGGESTED = {
    f"{module}:{line}": commands[0]
    for (module, line), each in texts().items()
    if (commands := [text for text in each if text.startswith("rmq ")])
}


def test_no_check_puts_a_name_into_a_command_by_itself():
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(checks.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        and ast.unparse(node).startswith(("f'rmq ", "f'mqadmin ", 'f"rmq '))
    ]
    assert found == []


@each_row("place", SUGGESTED)
def test_every_command_of_rmq_that_a_check_suggests_can_be_parsed(place):
    assert is_command(SUGGESTED[place]), SUGGESTED[place]


def test_no_check_suggests_a_command_of_mqadmin():
    assert [at for at, each in texts().items() if "mqadmin" in " ".join(each)] == []
