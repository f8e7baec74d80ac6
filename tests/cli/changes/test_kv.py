"""The key-value store of name servers: each has one of its own."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.admin.kv import apply_kv, kv_values, plan_kv
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.errors import ConfigError, DeniedError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.terminal import typed

PUT_KV = 100


def test_a_value_is_stored_listed_and_removed(rmq):
    put = ["nameserver", "kv", "put", "NS", "k", "v 1"]
    code, rows, err = rmq(*put)
    assert (code, rows) == (7, None)
    assert "k has no value, will be v 1" in err
    code, rows, _ = rmq(*put, "--yes")
    assert code == 0
    assert [(row["old"], row["new"], row["result"]) for row in rows] == [
        (None, "v 1", "changed")
    ]
    code, rows, err = rmq(*put)
    assert (code, rows[0]["result"]) == (0, "unchanged")
    assert err == "nothing was changed: the name servers have this value\n"
    code, rows, _ = rmq("nameserver", "kv", "list", "NS")
    assert [(row["key"], row["value"]) for row in rows] == [("k", "v 1")]
    code, rows, _ = rmq("nameserver", "kv", "get", "NS", "k")
    assert [(row["key"], row["value"]) for row in rows] == [("k", "v 1")]
    delete = ["nameserver", "kv", "delete", "NS", "k"]
    code, rows, err = rmq(*delete)
    assert (code, rows) == (7, None)
    assert "k is v 1, will have none" in err
    code, rows, _ = rmq(*delete, "--yes")
    assert (code, rows[0]["result"], rows[0]["new"]) == (0, "deleted", None)
    code, rows, err = rmq(*delete, "--yes")
    assert (code, rows[0]["result"]) == (0, "unchanged")
    assert err == "nothing was changed: the name servers have no such value\n"
    code, _, err = rmq("nameserver", "kv", "get", "NS", "k")
    assert code == 3
    assert "no name server has a value for k in NS" in err
    code, rows, err = rmq("nameserver", "kv", "list", "NS")
    assert (code, rows) == (3, None)
    assert "no name server has a value in NS" in err


def test_each_name_server_has_a_row_and_one_that_does_not_answer_is_named(
    rmq_cluster_factory, capsys
):
    one, other = rmq_cluster_factory(), rmq_cluster_factory()
    both = f"{one.namesrv};{other.namesrv}"
    put = ["nameserver", "kv", "put", "NS", "k", "v", "--yes", "-o", "json"]
    with typed("no\n"):
        assert run([*put[:6], "-n", both]) == 7
    asked = f"This sets k in NS on {one.namesrv}, {other.namesrv}. [y/N] "
    assert asked in capsys.readouterr().err
    other.faults.add(faults.answer(1, "read only"), code=PUT_KV)
    assert run([*put, "-n", both]) == 6
    out, err = capsys.readouterr()
    assert [(r["server"], r["new"], r["result"]) for r in json.loads(out)] == [
        (one.namesrv, "v", "changed"),
        (other.namesrv, None, "failed"),
    ]
    assert "read only" in err
    gone = other.namesrv
    other.close()
    assert run(["nameserver", "kv", "list", "NS", "-o", "json", "-n", both]) == 6
    out, err = capsys.readouterr()
    assert [(r["server"], r["value"]) for r in json.loads(out)] == [
        (one.namesrv, "v"),
        (gone, None),
    ]
    assert f"{gone} did not answer" in err


def test_a_key_that_would_not_be_kept_as_it_is_is_refused(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(ConfigError, match="contains an unpaired surrogate"):
            admin.put_kv("NS", "k", "a\udc80b")
        assert [each.result for each in admin.put_kv("NS", "k", "v")] == ["changed"]
        assert admin.kv_values("NS")[0].values == {"k": "v"}
        assert [each.result for each in admin.delete_kv("NS", "k")] == ["deleted"]


#: All that real name servers keep, see `test_real`; `isprintable` is false for most.
KEPT = [
    "",
    " a ",
    "a\u3000b",  # ideographic space
    "a\u00a0b",
    "\U0001f468\u200d\U0001f469",  # joined
    "\ue000",  # private use
    "a\n=b\r\n",
    "a\tb\x00\x1b[1m\x7f\x9b",
]


@pytest.mark.parametrize("text", KEPT)
def test_a_text_with_characters_that_are_not_visible_is_stored(rmq, cluster, text):
    """They were refused as control characters, which most of them are not."""
    with Admin(namesrv=cluster.namesrv) as admin:
        (done,) = admin.put_kv(f"NS{text}", f"k{text}", text)
        assert (done.result, done.new) == ("changed", text)
        assert admin.kv_values(f"NS{text}")[0].values == {f"k{text}": text}
    code, rows, _ = rmq("nameserver", "kv", "get", f"NS{text}", f"k{text}")
    assert (code, rows[0]["value"]) == (0, text)


def test_the_plan_names_a_value_that_is_empty_and_escapes_the_others(rmq):
    put = ["nameserver", "kv", "put", "NS", "k"]
    assert "k has no value, will be empty" in rmq(*put, "")[2]
    assert rmq(*put, "", "--yes")[0] == 0
    assert r"k is empty, will be \x1b[1m" in rmq(*put, "\x1b[1m")[2]


GET_KV = 101


@pytest.mark.parametrize(
    ("stored", "shown", "new", "result", "said"),
    [
        (faults.answer(0), None, None, "failed", "has another value of k afterwards"),
        (
            faults.answer(0),
            faults.answer(1, "busy"),
            None,
            "unknown",
            "did not show it afterwards",
        ),
        (faults.answer(1, "read only"), None, None, "failed", "read only"),
        (
            faults.answer(0),
            faults.answer(0, ext_fields={"value": "w"}),
            "w",
            "failed",
            "has another value of k afterwards",
        ),
    ],
)
def test_a_value_that_is_not_there_afterwards_is_no_success(
    cluster, stored, shown, new, result, said
):
    cluster.faults.add(stored, code=PUT_KV)
    if shown is not None:
        cluster.faults.add(shown, code=GET_KV, nth=2)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        (step,) = apply_kv(client, plan_kv(client, "NS", "k", "v"))
    assert (step.server, step.namespace, step.key) == (cluster.namesrv, "NS", "k")
    assert (step.old, step.new, step.result) == (None, new, result)
    assert said in str(step.error)


def test_what_is_as_wanted_is_not_written_again(cluster):
    written = cluster.faults.observe(code=PUT_KV)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        (step,) = plan_kv(client, "NS", "k", "v")
        assert (step.old, step.new, step.result) == (None, "v", "planned")
        (step,) = apply_kv(client, [step])
        assert (step.old, step.new, step.result) == (None, "v", "changed")
        (step,) = plan_kv(client, "NS", "k", "v")
        assert (step.old, step.new, step.result) == ("v", "v", "unchanged")
        assert apply_kv(client, [step]) == [step]
        (step,) = apply_kv(client, plan_kv(client, "NS", "k", None))
        assert (step.old, step.new, step.result) == ("v", None, "deleted")
    assert written.seen == 1


def test_without_any_name_server_the_first_error_is_raised(cluster):
    refused = faults.answer(16, "no permission")
    cluster.faults.add(refused, code=GET_KV)
    cluster.faults.add(refused, code=RequestCode.GET_KVLIST_BY_NAMESPACE)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        with pytest.raises(DeniedError):
            plan_kv(client, "NS", "k", "v")
        with pytest.raises(DeniedError):
            kv_values(client, "NS")


@pytest.mark.parametrize(
    ("namespace", "key", "value", "what"),
    [
        ("", "k", "v", "the namespace must not be empty"),
        ("NS", "", "v", "the key must not be empty"),
        ("NS\ud800", "k", "v", r"the namespace 'NS\\ud800' contains an unpaired sur"),
        (
            "NS",
            "k\udfff",
            "v",
            r"the key 'k\\udfff' contains an unpaired surrogate",
        ),
    ],
)
def test_a_text_that_would_not_be_kept_is_named(cluster, namespace, key, value, what):
    with (
        Client(ClientConfig(namesrv=(cluster.namesrv,))) as client,
        pytest.raises(ConfigError, match=what),
    ):
        plan_kv(client, namespace, key, value)
