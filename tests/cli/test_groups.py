"""`rmq group create|update|delete`: each broker has the state that is reported."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import open_client
from tests.admin.reset.member import FakeMember
from tests.consumer.collecting import committed
from tests.kit.terminal import typed

LIKE = ("4.6.0", "4.9.7", "5.5.0")
UPDATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP


class Shell:
    """Runs `rmq group` against a cluster."""

    def __init__(self, capsys, namesrv):
        self.capsys = capsys
        self._namesrv = namesrv

    def __call__(self, *words):
        """Run `rmq group`; return exit code, JSON of stdout or None, and stderr."""
        self.capsys.readouterr()
        code = run(["group", *words, "-n", self._namesrv, "-o", "json"])
        out, err = self.capsys.readouterr()
        return code, json.loads(out) if out else None, err

    def rows(self, *words, code=0):
        """Run `rmq group`; return server and result of each row."""
        found, rows, err = self(*words)
        assert found == code, err
        return [(row["server"], row["result"]) for row in rows]

    def settings(self, group):
        """Return the settings in `group show` by broker; None for an unknown group."""
        code, data, _ = self("show", group)
        if code == 3:
            return None
        return {each.pop("broker_name"): each for each in data["configs"]}


@pytest.fixture
def start(rmq_cluster_factory, capsys):
    def start(like="5.5.0", **options):
        cluster = rmq_cluster_factory(like=like, **options)
        return cluster, Shell(capsys, cluster.namesrv)

    return start


def test_the_settings_of_each_broker_are_a_table(start, capsys):
    cluster, rmq = start(brokers=2)
    assert rmq("create", "billing", "--max-retries", "3")[0] == 0
    capsys.readouterr()
    assert run(["group", "show", "billing", "-n", cluster.namesrv]) == 0
    assert (
        capsys.readouterr().out
        == """\
group billing: no active members

BROKER    CONSUME  BROADCAST  RETRY QUEUES  RETRY MAX
broker-a  yes      yes                   1          3
broker-b  yes      yes                   1          3
"""
    )


def test_groups_are_a_table_without_those_of_rocketmq(start, capsys):
    cluster, _ = start(brokers=2)
    hidden = "not shown: 8 system groups; --all shows them\n"
    assert run(["groups", "-n", cluster.namesrv]) == 0
    assert capsys.readouterr() == ("", f"no consumer groups\n{hidden}")
    cluster.create_group("audit")
    cluster.create_group("billing")
    with FakeMember(cluster, "billing"):
        assert run(["groups", "-n", cluster.namesrv]) == 0
    head, audit, billing = (
        ["GROUP", "MEMBERS", "CONSUME_TYPE", "MESSAGE_MODEL"],
        ["audit", "0", "-", "-", "broker-a,broker-b", "-", "-"],
        ["billing", "1", "CONSUME_PASSIVELY", "CLUSTERING", "broker-a,broker-b"],
    )
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [
        [*head, "BROKERS", "REASON", "ERROR"],
        audit,
        [*billing, "-", "-"],
    ]
    assert err == hidden
    assert run(["groups", "--all", "-n", cluster.namesrv]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (11, "")


@pytest.mark.parametrize("like", LIKE)
def test_a_group_is_created_on_all_masters_with_what_is_given(start, like):
    cluster, rmq = start(like, brokers=2)
    code, rows, err = rmq(
        *("create", "G", "--max-retries", "3", "--retry-queues", "2"),
        *("--no-broadcast", "--pull-from", "1"),
        *("--pull-from-when-slow", "2", "--no-consume"),
        *("--no-from-min-offset", "--no-notify-members"),
    )
    assert code == 0, err
    expected = {
        "consume_enable": False,
        "consume_broadcast_enable": False,
        "retry_queue_nums": 2,
        "retry_max_times": 3,
        "consume_from_min_enable": False,
        "consume_message_orderly": False,
        "broker_id": 1,
        "which_broker_when_consume_slowly": 2,
        "notify_consumer_ids_changed_enable": False,
    }
    assert rows == [
        {
            "name": "G",
            "server": name,
            "address": cluster.broker(name).address,
            "result": "created",
            **expected,
            "attributes": {},
            "error": None,
        }
        for name in ("broker-a", "broker-b")
    ]
    found = rmq.settings("G")
    assert set(found) == {"broker-a", "broker-b"}
    for config in found.values():
        assert config.items() >= expected.items()


def test_what_is_not_given_is_rocketmqs_default(start):
    _, rmq = start()
    assert rmq.rows("create", "G") == [("broker-a", "created")]
    config = rmq.settings("G")["broker-a"]
    assert (config["retry_max_times"], config["retry_queue_nums"]) == (16, 1)
    assert (config["consume_enable"], config["broker_id"]) == (True, 0)
    assert config["which_broker_when_consume_slowly"] == 1


def test_a_creation_that_failed_on_one_broker_is_repaired_by_the_same_command(start):
    cluster, rmq = start(brokers=2)
    cluster.faults.next(faults.answer(1, "no"), code=UPDATE, broker="broker-b")
    create = ("create", "G", "--max-retries", "3")
    assert rmq.rows(*create, code=6) == [
        ("broker-a", "created"),
        ("broker-b", "failed"),
    ]
    assert rmq.rows(*create) == [("broker-a", "unchanged"), ("broker-b", "created")]


def test_creating_does_not_change_a_group_that_exists(start):
    _, rmq = start()
    rmq.rows("create", "G", "--max-retries", "3")
    code, rows, err = rmq("create", "G", "--max-retries", "4")
    assert (code, rows[0]["result"]) == (7, "failed")
    says = "group G exists on broker-a with other settings: retry_max_times 3, not 4"
    assert says in err
    assert "rmq group update G" in err
    assert rmq.settings("G")["broker-a"]["retry_max_times"] == 3


def test_only_what_is_given_is_changed(start):
    _, rmq = start(brokers=2)
    rmq.rows("create", "G", "--max-retries", "3", "--no-broadcast")
    update = ("update", "G", "--no-consume", "--broker", "broker-b")
    assert rmq.rows(*update) == [("broker-b", "changed")]
    assert rmq.rows(*update) == [("broker-b", "unchanged")]
    found = rmq.settings("G")
    assert [found[n]["consume_enable"] for n in sorted(found)] == [True, False]
    for config in found.values():
        assert config["retry_max_times"] == 3
        assert config["consume_broadcast_enable"] is False
    assert rmq.rows("update", "G", "--consume") == [
        ("broker-a", "unchanged"),
        ("broker-b", "changed"),
    ]


def test_attributes_are_set_changed_and_removed(start):
    _, rmq = start()
    bound = "+lite.bind.topic=chats"
    priority = "+priority.factor=40"
    assert rmq.rows("create", "G", "--attribute", bound, "--attribute", priority) == [
        ("broker-a", "created")
    ]
    assert rmq.rows("create", "G", "--attribute", bound) == [("broker-a", "unchanged")]
    assert rmq.rows("update", "G", "--attribute", priority) == [
        ("broker-a", "unchanged")
    ]
    assert rmq.rows(
        *("update", "G", "--attribute", "+priority.factor=41"),
        *("--remove-attribute", "lite.bind.topic"),
    ) == [("broker-a", "changed")]
    assert rmq.settings("G")["broker-a"]["attributes"] == {"priority.factor": "41"}
    code, _, err = rmq("update", "G", "--remove-attribute", "lite.bind.topic")
    assert code == 3
    assert "group G has no attribute lite.bind.topic" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["update", "G", "--attribute", "+colour=red"],
            "broker-a, which runs RocketMQ 5.5.0, does not know the attribute colour",
        ),
        (
            ["create", "H", "--attribute", "+priority.factor=high"],
            "broker-a does not accept priority.factor=high: ",
        ),
    ],
)
def test_a_refused_attribute_is_named_with_the_broker(start, words, said):
    _, rmq = start()
    assert rmq.rows("create", "G") == [("broker-a", "created")]
    code, _, err = rmq(*words)
    assert code == 1
    assert said in err
    assert "SYSTEM_ERROR" not in err


def test_attributes_of_groups_need_5_1_3(start):
    """Older brokers would take them without a word, and drop them."""
    _, rmq = start(like="4.9.7")
    code, _, err = rmq("create", "G", "--attribute", "+lite.bind.topic=chats")
    assert code == 1
    assert "broker-a runs RocketMQ 4.9.7; they need 5.1.3 or later" in err
    assert rmq.settings("G") is None


def test_an_attribute_cannot_be_both_set_and_removed(start):
    _, rmq = start()
    words = ("--attribute", "+priority.factor=1", "--remove-attribute")
    code, _, err = rmq("update", "G", *words, "priority.factor")
    assert code == 2
    assert "priority.factor is among attributes and remove_attributes" in err


def test_attributes_that_this_version_of_rmq_does_not_know_are_kept(start):
    cluster, rmq = start()
    cluster.create_group("G", attributes={"a": "b"})
    assert rmq.rows("update", "G", "--max-retries", "5") == [("broker-a", "changed")]
    config = rmq.settings("G")["broker-a"]
    assert (config["attributes"], config["retry_max_times"]) == ({"a": "b"}, 5)


def test_a_group_that_is_missing_is_not_created_by_an_update(start):
    _, rmq = start(brokers=2)
    update = ("update", "G", "--max-retries", "5")
    code, rows, err = rmq(*update)
    assert (code, rows) == (3, None)
    assert "group G does not exist" in err
    rmq.rows("create", "G", "--broker", "broker-a")
    assert rmq.rows(*update, code=6) == [
        ("broker-a", "changed"),
        ("broker-b", "failed"),
    ]
    assert set(rmq.settings("G")) == {"broker-a"}


def test_order_is_for_brokers_of_5(start):
    _, rmq = start("4.9.7")
    code, rows, err = rmq("create", "G", "--orderly")
    assert (code, rows) == (1, None)
    assert "broker-a runs RocketMQ 4.9.7; the request needs 5.0.0 or later" in err
    assert rmq.settings("G") is None
    _, rmq = start("5.5.0")
    assert rmq.rows("create", "G", "--orderly")[0][1] == "created"
    assert rmq.settings("G")["broker-a"]["consume_message_orderly"] is True


@pytest.mark.slow
def test_a_silent_broker_costs_its_own_row(start):
    cluster, rmq = start(brokers=2)
    rmq.rows("create", "G")
    cluster.faults.add(faults.drop_request(), broker="broker-b")
    slow = ("--timeout", "5s")
    expected = [("broker-a", "changed"), ("broker-b", "failed")]
    assert rmq.rows("update", "G", "--max-retries", "1", *slow, code=6) == expected
    delete = ("delete", "G", "--remove-offsets", "--yes", "--force", *slow)
    expected = [("broker-a", "deleted"), ("broker-b", "failed")]
    assert rmq.rows(*delete, code=6) == expected
    cluster.faults.clear()
    expected = [("broker-a", "unchanged"), ("broker-b", "deleted")]
    assert rmq.rows("delete", "G", "--remove-offsets", "--yes") == expected


def test_a_broker_that_refuses_is_an_error_of_that_kind(start):
    cluster, rmq = start()
    cluster.faults.add(faults.answer(16, "no permission"), code=UPDATE)
    code, rows, _ = rmq("create", "G")
    assert (code, rows[0]["result"]) == (4, "failed")
    assert "no permission" in rows[0]["error"]


def with_offsets(cluster, group="G"):
    """Create the group, an offset of it in T, and its retry and dead-letter topics."""
    cluster.create_topic("T", queues=1)
    cluster.create_group(group)
    cluster.call(lambda: cluster.broker().state.offsets.commit(group, "T", 0, 5))
    for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
        cluster.create_topic(topic, queues=1)


@pytest.mark.parametrize(
    ("like", "words", "offsets"),
    [
        ("4.6.0", (), {0: 5}),
        ("4.6.0", ("--remove-offsets",), {0: 5}),  # 4.6.0 cannot remove them
        ("4.9.7", (), {0: 5}),
        ("4.9.7", ("--remove-offsets",), {}),
        ("5.5.0", ("--remove-offsets",), {}),
        ("5.5.0", ("-r",), {}),
    ],
)
def test_a_group_is_deleted_and_its_offsets_when_asked_for(start, like, words, offsets):
    cluster, rmq = start(like)
    with_offsets(cluster)
    code, rows, err = rmq("delete", "G", "--yes", *words)
    assert (code, [row["result"] for row in rows]) == (0, ["deleted"]), err
    assert committed(cluster, "G", "T") == offsets
    said = "broker-a runs RocketMQ 4.6.0, which keeps the offsets of the group" in err
    assert said == (like == "4.6.0" and bool(words))
    groups = cluster.call(lambda: set(cluster.broker().state.groups.all()))
    assert "G" not in groups


@pytest.mark.parametrize(
    ("like", "way"),
    [
        ("4.6.0", "brokers before 4.9.0 cannot remove them"),
        ("4.9.7", "remove them with: rmq group delete G --remove-offsets"),
    ],
)
def test_offsets_that_are_left_of_a_deleted_group_are_mentioned(start, like, way):
    """The group stayed in lists, and nothing said why or how to remove it."""
    cluster, rmq = start(like)
    with_offsets(cluster)
    code, _, err = rmq("delete", "G", "--yes")
    assert code == 0
    assert err.splitlines()[-1] == (
        "broker-a keeps the group's offsets, so that rmq lag and rmq groups still list"
        f" it; {way}"
    )
    if like == "4.9.7":
        code, _, err = rmq("delete", "G", "--remove-offsets", "--yes")
        assert (code, committed(cluster, "G", "T")) == (0, {})
        assert "keeps the group's offsets" not in err


def test_where_a_broker_would_create_it_again_that_is_said_first(start):
    cluster, rmq = start("5.5.0")
    with_offsets(cluster)
    code, rows, err = rmq("delete", "G", "--yes")
    assert (code, rows) == (7, None)
    assert "creates a deleted group again, with default settings" in err
    assert "--remove-offsets" in err
    assert rmq.settings("G") is not None
    assert committed(cluster, "G", "T") == {0: 5}


def test_its_topics_go_only_when_that_is_asked_for(start):
    cluster, rmq = start()
    with_offsets(cluster)
    assert rmq.rows("delete", "G", "--yes", "-r") == [("broker-a", "deleted")]
    topics = cluster.call(lambda: set(cluster.broker().state.topics.all()))
    assert topics >= {"T", "%RETRY%G", "%DLQ%G"}
    with_offsets(cluster)
    code, rows, err = rmq("delete", "G", "--yes", "-r", "--remove-topics")
    assert code == 0, err
    assert [(row["name"], row["server"], row["result"]) for row in rows] == [
        ("G", "broker-a", "deleted"),
        *(
            (topic, server, "deleted")
            for topic in ("%RETRY%G", "%DLQ%G")
            for server in ("broker-a", cluster.namesrv)
        ),
    ]
    topics = cluster.call(lambda: set(cluster.broker().state.topics.all()))
    assert "T" in topics
    assert not {"%RETRY%G", "%DLQ%G"} & topics


@pytest.mark.slow
def test_a_broker_that_hangs_is_asked_once_and_its_group_is_not_deleted(start):
    """It took five timeouts, and the group's retries were deleted with their topic."""
    cluster, rmq = start(brokers=2)
    with_offsets(cluster)
    asked = cluster.faults.observe(broker="broker-b")
    cluster.faults.add(faults.drop_request(), broker="broker-b")
    delete = ("delete", "G", "--yes", "-r", "--remove-topics", "--timeout", "1s")
    code, rows, err = rmq(*delete)
    assert (code, rows) == (6, None)
    assert "whether group G has members online is not known: broker-b: no answer" in err
    assert "try again, or add --force" in err
    code, rows, err = rmq(*delete, "--force")
    assert code == 6
    assert [(row["name"], row["server"], row["result"]) for row in rows] == [
        ("G", "broker-a", "deleted"),
        ("G", "broker-b", "failed"),
    ]
    assert "no answer from" in rows[1]["error"]
    assert "the retry and dead-letter topics of G are kept" in err
    assert [each.command.code for each in asked.requests] == [
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,  # once in each run
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    ]
    topics = cluster.call(lambda: set(cluster.broker().state.topics.all()))
    assert topics >= {"%RETRY%G", "%DLQ%G"}


def test_a_group_whose_settings_are_denied_is_not_deleted_without_its_offsets(start):
    """With --force it was, and a broker of 5.x makes such a group again."""
    cluster, rmq = start()
    with_offsets(cluster)
    denied = faults.answer(16, "no permission")
    settings = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    cluster.faults.add(denied, code=settings)
    asked = cluster.faults.observe(code=RequestCode.DELETE_SUBSCRIPTIONGROUP)
    code, rows, err = rmq("delete", "G", "--yes", "--force")
    assert (code, rows) == (7, None)
    assert "creates a deleted group again, with default settings, unless" in err
    assert (len(asked.requests), "add --remove-offsets" in err) == (0, True)


@pytest.mark.slow
def test_where_a_broker_does_not_answer_members_and_topics_are_unknown(start):
    """`group show` showed empty lists, and that no member is active."""
    cluster, rmq = start(brokers=2)
    cluster.create_group("G")
    cluster.broker("broker-b").hang()
    code, data, _ = rmq("show", "G", "--timeout", "1s")
    assert code == 6
    assert (data["members"], data["subscriptions"], data["topics"]) == (None,) * 3
    words = ["group", "show", "G", "--timeout", "1s", "-n", cluster.namesrv]
    rmq.capsys.readouterr()
    run([*words, "-o", "table"])
    assert rmq.capsys.readouterr().out.startswith("group G: members unknown\n")


@pytest.mark.slow
def test_a_group_with_members_is_not_deleted(start):
    cluster, rmq = start(brokers=2)
    with_offsets(cluster)
    with FakeMember(cluster, broker="broker-b", client_id="10.0.0.1@7"):
        code, rows, err = rmq("delete", "G", "--yes", "-r")
        assert (code, rows) == (7, None)
        assert "group G has members online: 10.0.0.1@7; nothing was deleted" in err
        assert "--force" in err
        assert set(rmq.settings("G")) == {"broker-a", "broker-b"}
        # No member is online at broker-a.
        delete = ("delete", "G", "--yes", "-r")
        assert rmq.rows(*delete, "--broker", "broker-a") == [("broker-a", "deleted")]
        assert rmq.rows(*delete, "--force") == [
            ("broker-a", "unchanged"),
            ("broker-b", "deleted"),
        ]


def test_many_members_are_counted(start):
    cluster, rmq = start()
    cluster.create_group("G")
    members = [FakeMember(cluster, client_id=f"10.0.0.{n}@1") for n in range(1, 6)]
    code, _, err = rmq("delete", "G", "--yes", "-r")
    for member in members:
        member.close()
    assert code == 7
    assert "10.0.0.1@1, 10.0.0.2@1, 10.0.0.3@1 and 2 more" in err


def test_rocketmqs_own_groups_are_not_deleted(start):
    _, rmq = start()
    code, _, err = rmq("delete", "TOOLS_CONSUMER", "--yes", "-r")
    assert code == 7
    assert "group TOOLS_CONSUMER is a system group; nothing was deleted" in err


def test_what_does_not_exist_is_3(start):
    _, rmq = start()
    assert rmq("delete", "G", "--yes", "-r")[0] == 3
    code, _, err = rmq("create", "G", "--broker", "nope")
    assert (code, "use one of: broker-a" in err) == (3, True)
    assert rmq("create", "G", "--cluster", "nope")[0] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "a b"), "not allowed"),
        (("create", "G", "--retry-queues", "0"), "--retry-queues"),
        (("create", "G", "--max-retries", "-1"), "--max-retries"),
        (
            ("create", "G", "--cluster", "C", "--broker", "b"),
            "--cluster and --broker cannot be used together",
        ),
        (
            ("delete", "G", "--cluster", "C", "--broker", "b"),
            "--cluster and --broker cannot be used together",
        ),
        (
            ("delete", "G", "--remove-topics", "--broker", "b"),
            "--remove-topics and --broker cannot be used together",
        ),
        (("update", "G"), "nothing to change\nhint: see: rmq group update --help"),
    ],
)
def test_usage_errors(words, said, capsys):
    assert run(["group", *words, "-n", "127.0.0.1:1"]) == 2
    assert said in capsys.readouterr().err


def test_nothing_is_deleted_without_agreement(start):
    cluster, rmq = start()
    cluster.create_group("G")
    code, rows, err = rmq("delete", "G", "-r", "--no-input")
    assert (code, rows) == (7, None)
    assert "hint: run: rmq" in err or '"run: rmq' in err
    assert rmq.settings("G") is not None


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "group G"),
        (("-r",), "group G and its offsets"),
        (
            ("-r", "--remove-topics"),
            "group G and its offsets and its retry and dead letter topics",
        ),
    ],
)
@pytest.mark.parametrize("answer", ["G", "y"])
def test_on_a_terminal_the_name_is_asked_for(start, words, what, answer):
    cluster, rmq = start(like="4.9.7", brokers=2)
    cluster.create_group("G")
    with typed(f"{answer}\n"):
        code, _, err = rmq("delete", "G", *words)
    question = f"This deletes {what} on broker-a, broker-b.\nType G to confirm: "
    assert err.startswith(question)
    is_deleted = answer == "G"
    assert code == (0 if is_deleted else 7)
    assert (rmq.settings("G") is None) == is_deleted
    if not is_deleted:
        said = "not confirmed: 'G' was not typed, nothing was changed"
        assert json.loads(err.removeprefix(question))["error"]["message"] == said


def test_the_table_shows_what_matters(start, capsys):
    cluster, _ = start()
    run(["group", "create", "G", "-n", cluster.namesrv, "-o", "table"])
    header = capsys.readouterr().out.splitlines()[0].split()
    assert header[:4] == ["NAME", "SERVER", "ADDRESS", "RESULT"]
    assert "CONSUME" in header
    assert header[-1] == "ERROR"


@pytest.mark.java
@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_real_brokers_take_all_of_it(real_cluster, rmq_version, capsys):
    rmq = Shell(capsys, real_cluster.namesrv)
    group = f"G-{uuid.uuid4().hex[:12]}"
    create = ("create", group, "--max-retries", "3", "--retry-queues", "2")
    assert rmq.rows(*create) == [("broker-a", "created")]
    config = rmq.settings(group)["broker-a"]
    assert (config["retry_max_times"], config["retry_queue_nums"]) == (3, 2)
    policy = {"type": "CUSTOMIZED"} if rmq_version.startswith("5.") else None
    assert config["retry_policy"] == policy
    assert rmq.rows(*create) == [("broker-a", "unchanged")]
    update = ("update", group, "--no-consume", "--no-broadcast")
    assert rmq.rows(*update) == [("broker-a", "changed")]
    config = rmq.settings(group)["broker-a"]
    assert (config["consume_enable"], config["consume_broadcast_enable"]) == (
        False,
        False,
    )
    assert (config["retry_max_times"], config["retry_queue_nums"]) == (3, 2)
    if rmq_version.startswith("5."):
        assert rmq("delete", group, "--yes")[0] == 7
        assert rmq.settings(group)["broker-a"]["retry_max_times"] == 3
    assert rmq.rows("delete", group, "--yes", "-r") == [("broker-a", "deleted")]
    assert rmq.settings(group) is None
    assert rmq("update", group, "--consume")[0] == 3


@pytest.mark.java
@pytest.mark.rmq_versions("5.5.0")
def test_attributes_of_a_group_on_a_real_broker(real_cluster, capsys):
    """A broker takes changes of attributes only, and refuses the values themselves."""
    rmq = Shell(capsys, real_cluster.namesrv)
    group = f"G-{uuid.uuid4().hex[:12]}"
    create = ("create", group, "--attribute", "+priority.factor=40")
    assert rmq.rows(*create) == [("broker-a", "created")]
    update = ("update", group, "--retry-max-times", "7")
    assert rmq.rows(*update) == [("broker-a", "changed")]
    settings = rmq.settings(group)["broker-a"]
    assert settings["retry_max_times"] == 7
    assert settings["attributes"] == {"priority.factor": "40"}
    update = ("update", group, "--attribute", "+priority.factor=41")
    assert rmq.rows(*update) == [("broker-a", "changed")]
    remove = ("update", group, "--remove-attribute", "priority.factor")
    assert rmq.rows(*remove) == [("broker-a", "changed")]
    assert rmq(*remove)[0] == 3  # it has none now
    assert rmq.settings(group)["broker-a"]["attributes"] == {}
    for given, said in (
        ("+colour=red", "RocketMQ 5.5.0, does not know the attribute colour"),
        ("+priority.factor=high", '=high: For input string: \\"high\\"'),
        ("+lite.sub.model=No", "lite.sub.model=No: value is not in set: [Shared, Ex"),
    ):
        code, _, err = rmq("update", group, "--attribute", given)
        assert code == 1
        assert said in err
        assert "java" not in err


def test_a_group_of_many_topics_names_some_in_the_table_and_all_in_json(start, capsys):
    """1,002 topics were one line, which hid all that came before it."""
    cluster, rmq = start()
    cluster.create_group("billing")
    names = [f"t{number:02}" for number in range(22)]
    with open_client(cluster.namesrv) as client:
        for name in names:
            cluster.create_topic(name, queues=1)
            call = update_consumer_offset("billing", name, 0, commit_offset=0)
            client.invoke(cluster.broker("broker-a").address, call)
    assert rmq("show", "billing")[1]["topics"] == names
    assert run(["group", "show", "billing", "-n", cluster.namesrv]) == 0
    shown = ", ".join(names[:20])
    assert f"topics: {shown} and 2 more; -o json has all\n" in capsys.readouterr().out
