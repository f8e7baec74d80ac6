"""Runs one row of the table and compares the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.wire.message.decode import decode_messages
from tests.broker.behaviour.stage import ANY

if TYPE_CHECKING:
    from tests.broker.behaviour.stage import Row, Stage


def check(stage: Stage, row: Row, version: str) -> None:
    """Send a row's request; compare code, remark, listed fields and message count."""
    if not row.is_for(version):
        return
    for code, fields in row.before:
        stage.must(code, fields)
    expected = row.expected(version)
    answer = stage.ask(row.code, row.fields, body=row.body)
    found = {key: answer.ext_fields.get(key) for key in expected.fields}
    assert (answer.code, found) == (expected.code, expected.fields), answer
    if expected.remark is not ANY:
        wanted = expected.remark
        wanted = wanted if wanted is None else wanted.format(**stage.names)
        assert answer.remark == wanted
    assert len(decode_messages(answer.body)) == expected.messages
