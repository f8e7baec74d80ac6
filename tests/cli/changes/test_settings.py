"""Settings are shown before they change, read back afterwards, and compared."""

from __future__ import annotations

import pytest

from rmqcli import Admin
from rmqcli.admin.settings import (
    ShownSettings,
    diff_settings,
    is_secret,
    needs_restart,
    plan_settings,
)
from rmqcli.cli.main import run
from rmqcli.errors import ConfigError, PartialError
from rmqcli.testing import faults

SET_CONFIG, GET_CONFIG = 25, 26


def rows_of(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def server(name="broker-a", broker_id=0, **settings):
    return ShownSettings(
        server=name, address=f"{name}:{broker_id}", broker_id=broker_id,
        settings=settings,
    )  # fmt: skip


def test_settings_are_listed_by_broker(rmq):
    code, rows, _ = rmq("broker", "config", "get", "maxMessageSize", "brokerRole")
    assert code == 0
    assert rows_of(rows, "broker_name", "broker_id", "name", "value") == [
        ("broker-a", 0, "maxMessageSize", "4194304"),
        ("broker-a", 0, "brokerRole", "ASYNC_MASTER"),
        ("broker-b", 0, "maxMessageSize", "4194304"),
        ("broker-b", 0, "brokerRole", "ASYNC_MASTER"),
    ]


def test_a_setting_that_no_broker_has_is_refused_with_the_name_that_was_meant(rmq):
    code, rows, err = rmq("broker", "config", "get", "maxMesageSize")
    assert (code, rows) == (2, None)
    assert "no server has the setting maxMesageSize; did you mean maxMessageSize" in err
    code, rows, err = rmq("broker", "config", "get", "broker-a", "brokerRole")
    assert (code, rows) == (2, None)
    assert "no server has the setting broker-a; broker-a is a broker" in err
    set_it = ["broker", "config", "set", "maxMesageSize=1", "--broker", "broker-a"]
    code, rows, err = rmq(*set_it, "--yes")
    assert (code, rows) == (2, None)
    assert "no server has the setting maxMesageSize" in err


def test_a_change_is_shown_before_it_is_confirmed(rmq, cluster):
    set_it = ["broker", "config", "set", "maxMessageSize=1000", "--broker", "broker-a"]
    code, rows, err = rmq(*set_it)
    assert (code, rows) == (7, None)
    assert "broker-a: maxMessageSize is 4194304, will be 1000\n" in err
    assert "not confirmed: nothing was changed" in err
    assert cluster.broker().state.settings.max_message_size == 4194304


def test_only_the_named_brokers_are_changed_and_read_back(rmq, cluster):
    set_it = ["broker", "config", "set", "maxMessageSize=1000", "--broker", "broker-a"]
    code, rows, _ = rmq(*set_it, "--yes")
    assert code == 0
    assert rows_of(rows, "broker_name", "name", "old", "new", "result") == [
        ("broker-a", "maxMessageSize", "4194304", "1000", "changed")
    ]
    assert cluster.broker().state.settings.max_message_size == 1000
    assert cluster.broker("broker-b").state.settings.max_message_size == 4194304
    code, rows, err = rmq(*set_it)
    assert (code, rows_of(rows, "result")) == (0, [("unchanged",)])
    assert "nothing was changed" in err


def test_neither_brokers_nor_a_cluster_is_a_mistake(rmq):
    code, _, err = rmq("broker", "config", "set", "maxMessageSize=1000", "--yes")
    assert code == 2
    assert "name either the brokers or a cluster" in err


def test_a_cluster_means_its_slaves_too(rmq, cluster):
    """A slave with other settings would show only after a fail-over."""
    cluster.add_slave("broker-b")
    code, rows, _ = rmq(
        "broker", "config", "set", "maxMessageSize=7000", "--cluster", "DefaultCluster",
        "--yes",
    )  # fmt: skip
    assert code == 0
    assert rows_of(rows, "broker_name", "broker_id", "result") == [
        ("broker-a", 0, "changed"),
        ("broker-b", 0, "changed"),
        ("broker-b", 1, "changed"),
    ]


def test_a_broker_that_refuses_has_a_row_and_the_others_are_changed(rmq, cluster):
    cluster.faults.add(
        faults.answer(1, "disk full"), code=SET_CONFIG, broker="broker-b"
    )
    set_it = ["broker", "config", "set", "maxMessageSize=9000"]
    code, rows, err = rmq(*set_it, "--cluster", "DefaultCluster", "--yes")
    assert code == 6
    assert rows_of(rows, "broker_name", "old", "new", "result") == [
        ("broker-a", "4194304", "9000", "changed"),
        ("broker-b", "4194304", "4194304", "failed"),
    ]
    assert "disk full" in rows[1]["error"]
    assert "1 of 2 servers failed" in err


def test_a_broker_that_confirms_but_keeps_its_value_is_found_out(rmq, cluster):
    """RocketMQ confirms a change to a value that it does not accept."""
    cluster.faults.add(faults.answer(0), code=SET_CONFIG, broker="broker-b")
    set_it = ["broker", "config", "set", "maxMessageSize=8000", "--broker", "broker-b"]
    code, rows, err = rmq(*set_it, "--yes")
    assert code == 7
    assert rows_of(rows, "new", "result") == [("4194304", "failed")]
    assert "confirmed the change of maxMessageSize, but did not accept" in err


def test_a_broker_that_does_not_show_its_settings_is_not_called_changed(rmq, cluster):
    cluster.faults.add(
        faults.answer(1, "no"), code=GET_CONFIG, broker="broker-b", nth=2
    )
    set_it = ["broker", "config", "set", "maxMessageSize=6000", "--broker", "broker-b"]
    code, rows, err = rmq(*set_it, "--yes")
    assert code == 6
    assert rows_of(rows, "new", "result") == [(None, "unknown")]
    assert "did not show it afterwards" in err


def test_a_broker_that_does_not_answer_is_named(rmq, cluster):
    cluster.faults.add(faults.answer(1, "no"), code=GET_CONFIG, broker="broker-b")
    code, rows, err = rmq("broker", "config", "get", "brokerRole")
    assert code == 6
    assert rows_of(rows, "broker_name", "value") == [
        ("broker-a", "ASYNC_MASTER"),
        ("broker-b", None),
    ]
    assert "broker-b did not answer" in err
    code, rows, err = rmq("broker", "config", "diff")
    assert (code, rows) == (6, [])
    assert "broker-b did not answer" in err


def test_a_setting_that_a_silent_broker_may_have_is_not_said_to_be_none(rmq, cluster):
    cluster.faults.add(faults.answer(1, "no"), code=GET_CONFIG, broker="broker-b")
    code, rows, err = rmq("broker", "config", "get", "ofNewVersions")
    assert code == 6
    assert rows_of(rows, "broker_name", "name", "value") == [
        ("broker-a", "ofNewVersions", None),
        ("broker-b", None, None),
    ]
    assert "broker-b did not answer" in err


def test_brokers_are_compared_with_each_other(rmq):
    code, rows, err = rmq("broker", "config", "diff")
    assert (code, rows) == (0, [])
    assert "not shown: 2 settings that are different for each broker" in err
    set_it = ["broker", "config", "set", "maxMessageSize=5000", "--broker", "broker-b"]
    rmq(*set_it, "--yes")
    code, rows, _ = rmq("broker", "config", "diff")
    assert code == 0
    assert rows == [
        {"name": "maxMessageSize", "value": "4194304", "brokers": ["broker-a"]},
        {"name": "maxMessageSize", "value": "5000", "brokers": ["broker-b"]},
    ]
    names = {row["name"] for row in rmq("broker", "config", "diff", "--all")[1]}
    assert names == {"maxMessageSize", "brokerName", "listenPort"}


def test_one_broker_has_nothing_to_be_compared_with(rmq_cluster, capsys):
    assert run(["broker", "config", "diff", "-n", rmq_cluster.namesrv]) == 2
    assert "nothing to compare it with" in capsys.readouterr().err


def test_the_role_of_a_slave_is_no_difference():
    master = server(brokerRole="SYNC_MASTER", a="1")
    slave = server(broker_id=1, brokerRole="SLAVE", a="1")
    other = server("broker-b", brokerRole="ASYNC_MASTER", a="1")
    assert diff_settings([master, slave]).values == ()
    found = diff_settings([master, slave, other])
    assert [(each.value, each.servers) for each in found.values] == [
        ("SYNC_MASTER", ("broker-a:0",)),
        ("ASYNC_MASTER", ("broker-b",)),
    ]


def test_a_setting_that_a_broker_lacks_is_a_difference():
    found = diff_settings([server(a="1"), server("broker-b")])
    assert [(each.value, each.servers) for each in found.values] == [
        ("1", ("broker-a",)),
        (None, ("broker-b",)),
    ]


def test_secrets_are_compared_but_not_shown():
    a = server(initAuthenticationUser='{"username":"a","password":"xy12"}')
    b = server("broker-b", initAuthenticationUser='{"username":"a","password":"zz"}')
    found = diff_settings([a, b])
    assert [each.value for each in found.values] == ["(hidden)", "(hidden)"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("innerClientAuthenticationCredentials", '{"accessKey":"a"}', True),
        ("metricsGrpcExporterHeader", "Authorization:Bearer x", True),
        ("tlsClientKeyPassword", "x", True),
        ("anything", '{"secretKey":"x"}', True),
        ("authenticationEnabled", "true", False),
        ("accessMessageInMemoryMaxRatio", "40", False),
        ("initAuthenticationUser", "", False),
        ("messageDelayLevel", "1s 5s", False),
    ],
)
def test_what_is_a_secret(name, value, expected):
    assert is_secret(name, value) is expected


@pytest.mark.parametrize("value", ["a\u3000b", "a\u00a0b", "\ue000", "a\tb\x7f"])
def test_a_value_with_characters_that_are_not_visible_is_set(rmq, value):
    """They were refused as control characters, which most of them are not."""
    set_it = ["nameserver", "config", "set", f"productEnvName={value}", "--yes"]
    code, rows, err = rmq(*set_it)
    assert (code, rows[0]["new"], rows[0]["result"]) == (0, value, "changed"), err


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("a\nb=c", "has a line end, which servers do not keep"),
        ("a\r", "has a line end, which servers do not keep"),
        ("\udc80", "contains an unpaired surrogate, which servers do not keep"),
    ],
)
def test_a_value_that_servers_do_not_keep_as_it_is_is_refused(value, fault):
    with pytest.raises(ConfigError) as caught:
        plan_settings([server(brokerIP1="x")], {"brokerIP1": value})
    assert str(caught.value) == f"the value of brokerIP1 {fault}"


def test_a_secret_cannot_be_set_by_an_argument():
    with pytest.raises(ConfigError, match="is a secret"):
        plan_settings([server(aPassword="x")], {"aPassword": "y"})


@pytest.mark.parametrize("name", ["brokerName", "brokerClusterName", "brokerId"])
def test_the_identity_of_a_broker_is_not_changed_while_it_runs(name):
    """A real broker registered under both names, each with all its queues."""
    with pytest.raises(ConfigError, match="cannot be changed while a broker runs"):
        plan_settings([server(**{name: "1"})], {name: "2"})


def test_a_switch_takes_only_true_or_false():
    """Java takes every other word for false."""
    with pytest.raises(ConfigError, match="'yes' is not a value of it"):
        plan_settings([server(a="true")], {"a": "yes"})


def test_settings_that_are_read_at_the_start_are_known():
    plan = plan_settings([server(listenPort="1")], {"listenPort": "2"})
    assert [step.needs_restart for step in plan.steps] == [True]
    assert needs_restart("sendMessageThreadPoolNums")
    assert not needs_restart("fileReservedTime")


def test_name_servers_are_read_and_changed(rmq):
    code, rows, _ = rmq("nameserver", "config", "get", "productEnvName")
    assert (code, rows_of(rows, "name", "value")) == (0, [("productEnvName", "center")])
    set_it = ["nameserver", "config", "set", "productEnvName=östlich a=b"]
    assert rmq(*set_it)[0] == 7
    code, rows, _ = rmq(*set_it, "--yes")
    assert code == 0
    assert rows_of(rows, "old", "new", "result") == [
        ("center", "östlich a=b", "changed")
    ]


def test_the_library_does_the_same(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(ConfigError, match="give either brokers or a cluster"):
            admin.plan_broker_settings({"maxMessageSize": "1000"})
        plan = admin.plan_broker_settings(
            {"maxMessageSize": "1000"}, cluster="DefaultCluster"
        )
        assert [step.result for step in plan.steps] == ["planned", "planned"]
        results = admin.apply_settings(plan)
        assert [each.result for each in results] == ["changed", "changed"]
        assert admin.compare_broker_settings().values == ()
        cluster.faults.add(
            faults.answer(1, "disk full"), code=SET_CONFIG, broker="broker-b"
        )
        plan = admin.plan_broker_settings(
            {"maxMessageSize": "2000"}, cluster="DefaultCluster"
        )
        with pytest.raises(PartialError, match="1 of 2 servers failed"):
            admin.apply_settings(plan)
        names = admin.plan_namesrv_settings({"productEnvName": "east"})
        assert [each.new for each in admin.apply_settings(names)] == ["east"]
        (shown,) = admin.namesrv_settings()
        assert shown.settings is not None
        assert shown.settings["productEnvName"] == "east"


def test_passwords_of_a_broker_are_not_shown(rmq, cluster, capsys):
    cluster.faults.add(
        faults.answer(0, body=b"aPassword=sesame\nb=1\n"),
        code=GET_CONFIG,
        broker="broker-a",
    )
    code, rows, _ = rmq("broker", "config", "get", "--broker", "broker-a")
    assert (code, rows_of(rows, "name", "value")) == (
        0,
        [("aPassword", "(hidden)"), ("b", "1")],
    )
    code, rows, _ = rmq("broker", "show", "broker-a")
    assert (code, rows[0]["settings"]) == (0, {"aPassword": "(hidden)", "b": "1"})
    show = ["broker", "show", "broker-a", "--settings", "-n", cluster.namesrv]
    assert run(show) == 0
    assert "sesame" not in capsys.readouterr().out


def test_what_a_broker_forbids_has_no_hint_about_topics(rmq, cluster):
    cluster.faults.add(faults.answer(16, "in black list"), code=SET_CONFIG)
    set_it = ["broker", "config", "set", "maxMessageSize=1000", "--broker", "broker-a"]
    code, _, err = rmq(*set_it, "--yes")
    assert code == 4
    assert "in black list" in err
    assert "check the topic" not in err
