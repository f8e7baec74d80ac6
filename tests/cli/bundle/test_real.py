"""`rmq bundle` of a real cluster: it is complete, with settings of all servers.

And what secrets real servers and messages have is not in it.
"""

from __future__ import annotations

import json
import tarfile
from urllib.parse import quote

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.cli.bundle.test_command import b64, escaped, opened, secret
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def cluster(rmq_version, start_shared):
    """A cluster of these tests only: what others do may keep it from telling all."""
    return start_shared(rmq_version)


def test_the_archive_is_complete(cluster, tmp_path, capsys):
    cluster.create_topic("bundled", queues=2)
    path = tmp_path / "b.tar.gz"
    words = ["bundle", "--out", str(path), "-n", cluster.namesrv, "-o", "json"]
    code = run(words)
    shown = json.loads(capsys.readouterr().out)
    # 4.6.0 lists producers of a given group only.
    is_old = cluster.version == "4.6.0"
    with tarfile.open(path) as archive:
        read = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            read[member.name.partition("/")[2]] = json.load(file)
    # A 4.6.0 that has just started does not report its disk.
    findings = [
        each for check in read["doctor.json"]["checks"] for each in check["findings"]
    ]
    doctor = ["doctor.json"] if "unknown" in [e["status"] for e in findings] else []
    partial = [each["file"] for each in shown["files"] if each["status"] != "ok"]
    assert partial == doctor + (["producers.json"] if is_old else [])
    assert code == (6 if partial else 0)
    (server,) = read["name-servers.json"]
    assert server["settings"]["listenPort"] == cluster.namesrv.partition(":")[2]
    (broker,) = read["brokers.json"]
    assert broker["settings"]["brokerName"] == broker["broker_name"]
    assert "bundled" in [each["topicName"] for each in read["topics.json"]]
    (without,) = read["accounts.json"]["without"]
    assert without == (
        "access control 2.0 needs RocketMQ 5.3.0, and broker-a has 4.6.0"
        if is_old
        else "access control is off: authenticationMetadataProvider is not set"
    )
    routes = {each["topic"]: each for each in read["routes.json"]}
    assert routes["bundled"]["queues"][0]["read_queue_nums"] == 2


def texts_of(secrets):
    """Return texts of settings and bodies, each of which tells its secret."""
    forms = (
        lambda s: json.dumps({"password": s}),
        lambda s: f"jdbc:mysql://db/x?user=u&password={s}",
        lambda s: f"redis://:{s}@cache:6379/0",
        lambda s: f"Authorization:Bearer {s}",
        lambda s: f'{{"nested": {{"secret_key": "{escaped(s)}"}}}}',
        lambda s: b64(json.dumps({"secretKey": s})),
        lambda s: quote(f"password={s}", safe=""),
        lambda s: f"<x><password>{s}</password></x>",
        lambda s: f"--keystore-password {s} -Dx=1",
        lambda s: b64(b64(f"token={s}")),
    )
    return [form(each) for form, each in zip(forms, secrets, strict=False)]


@pytest.mark.real_only
def test_of_fifty_planted_secrets_none_is_in_the_archive(
    cluster, tmp_path, monkeypatch
):
    """In settings of both servers, bodies, properties, and the environment."""
    topic = cluster.create_topic(queues=1)
    s = [secret(number) for number in range(50)]
    for number, each in enumerate(s[:10]):
        monkeypatch.setenv(f"APP{number}_TOKEN", each)
    with Admin(namesrv=cluster.namesrv) as admin:
        texts = " ; ".join(texts_of(s[10:20]))
        settings = {"msgTraceTopicName": texts}
        plan = admin.plan_broker_settings(settings, brokers=["broker-a"])
        assert [each.result for each in admin.apply_settings(plan)] == ["changed"]
        texts = " ; ".join(texts_of(s[20:30]))
        plan = admin.plan_namesrv_settings({"productEnvName": texts})
        assert [each.result for each in admin.apply_settings(plan)] == ["changed"]
        with Producer(namesrv=cluster.namesrv) as producer:
            for text, other, known in zip(
                texts_of(s[30:40]), s[40:50], s[:10], strict=True
            ):
                properties = {"apiKey": other, "note": f"with {known}"}
                producer.send(
                    ProducerMessage(topic, text.encode(), properties=properties)
                )
        wait_until(lambda: len(list(admin.read(topic, to="latest"))) == 10)
    path = tmp_path / "b.tar.gz"
    words = ["bundle", "--out", str(path), "--messages", topic]
    assert run([*words, "-n", cluster.namesrv]) in (0, 6)
    files = opened(path)
    assert len(json.loads(files["messages.json"])) == 10
    whole = b"\n".join(files.values()).decode()
    # The body of each message, its apiKey and its note; settings lose whole texts.
    assert whole.count("<removed>") >= 30
    for each in s:
        for form in (each, escaped(each), b64(each), quote(each, safe="")):
            assert form not in whole, each
