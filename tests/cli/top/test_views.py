"""What the views of `rmq top` show, without a terminal."""

from __future__ import annotations

import pytest

from rmqcli.api.client import Client
from rmqcli.cli.lag.view import summary_columns
from rmqcli.cli.top.frame import Painter
from rmqcli.cli.top.groups import GroupsView
from rmqcli.cli.top.messages import LettersView
from rmqcli.config import ClientConfig
from tests.admin.dlq.letters import make_letters
from tests.cli.top.test_frame import lines_of, picture


@pytest.mark.parametrize("width", [80, 110])
def test_the_columns_of_groups_depend_on_the_width_only(rmq_cluster, width):
    """TREND grew with each reading, and others came and went."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    view, painter, headings = GroupsView(), Painter(), set()
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for _ in range(25):
            view.take(view.read(client))
            shown = picture(rows=view.rows(), columns=view.columns)
            headings.add(lines_of(painter.draw(shown, width, 12))[2])
    assert len(headings) == 1


def test_columns_of_rates_are_there_before_there_are_rates():
    columns = summary_columns(with_trend=True, with_spark=True)
    row = {"group": "billing", "total_lag": 7, "state": "OK", "topics": []}
    row |= {"spark": " " * 10, "members": []}
    later = row | {"rate_in": 1.5, "rate_out": 2.5, "drain_ms": 7_000}
    headings = {
        lines_of(Painter().draw(picture(rows=[each], columns=columns), 80, 12))[2]
        for each in (row, later)
    }
    assert headings == {
        "GROUP    LAG  IN/S  OUT/S  DRAIN  TREND       STATE  TOPICS  QUEUES  MEMBERS"
    }


def test_where_letters_cannot_be_read_the_notes_say_what_helps(rmq_cluster_factory):
    """A broker of 4.6.0 refuses pulls of dead letters, and hides where they are."""
    cluster = rmq_cluster_factory(queues=1, like="4.6.0")
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", "ab")
    view = LettersView("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view.take(view.read(client))
    error, hint = view.notes()
    assert "%DLQ%billing is write-only" in error
    assert hint == "make it readable: rmq topic update %DLQ%billing --perm 6"
