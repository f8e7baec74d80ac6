"""`rmq bundle`: what is in the archive, what is not, and what it says of failures."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import tarfile
import zipfile
from urllib.parse import quote, unquote

import pytest

from rmqcli.cli.bundle import parts
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import plant_runtime, plant_settings

FILES = [
    "manifest.json",
    "rmq.json",
    "name-servers.json",
    "cluster.json",
    "doctor.json",
    "brokers.json",
    "topics.json",
    "routes.json",
    "groups.json",
    "lag.json",
    "dead-letters.json",
    "accounts.json",
    "producers.json",
    "statistics.json",
]


@pytest.fixture
def bundle(rmq_cluster, tmp_path, capsys, monkeypatch):
    """`bundle(...)` runs the command; returns exit code, files and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def call(*arguments, out="b.tar.gz", namesrv=rmq_cluster.namesrv):
        words = ["bundle", "--out", out, "-n", namesrv, *arguments]
        code = run(words)
        _, err = capsys.readouterr()
        return code, opened(tmp_path / out), err

    return call


def opened(path):
    """Return the files of an archive by name, without the folder."""
    if not path.exists():
        return {}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    else:
        with tarfile.open(path) as archive:
            found = {}
            for each in archive.getmembers():
                file = archive.extractfile(each)
                assert file is not None
                found[each.name] = file.read()
    (folder,) = {name.partition("/")[0] for name in found}
    assert re.fullmatch(r"rmq-bundle-\d{8}T\d{6}Z", folder)
    return {name.partition("/")[2]: data for name, data in found.items()}


@pytest.mark.parametrize("out", ["b.tar.gz", "b.tgz", "b.zip"])
def test_the_archive_has_the_same_files_whatever_its_kind(bundle, rmq_topic, out):
    code, files, _ = bundle(out=out)
    assert code == 0
    assert list(files) == FILES
    assert all(json.loads(data) is not None for data in files.values())


def test_the_archive_says_what_the_commands_say(bundle, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["a", "b"])
    _, files, _ = bundle()
    read = {name: json.loads(data) for name, data in files.items()}
    assert read["rmq.json"]["namesrv"] == [rmq_cluster.namesrv]
    assert read["cluster.json"]["topics"]["normal"] == 1
    assert {check["name"] for check in read["doctor.json"]["checks"]} >= {"disk"}
    (broker,) = read["brokers.json"]
    assert (broker["broker_name"], broker["error"]) == ("broker-a", None)
    assert broker["settings"]["brokerName"] == "broker-a"
    assert broker["runtime"]["brokerVersionDesc"] == "V5_5_0"
    (topic,) = [t for t in read["topics.json"] if t["topicName"] == rmq_topic]
    assert (topic["broker_name"], topic["readQueueNums"]) == ("broker-a", 4)
    (route,) = [r for r in read["routes.json"] if r["topic"] == rmq_topic]
    assert route["queues"] == [
        {
            "broker_name": "broker-a",
            "read_queue_nums": 4,
            "write_queue_nums": 4,
            "perm": 6,
        }
    ]
    queues = [q for q in read["statistics.json"] if q["topic"] == rmq_topic]
    assert sum(queue["max_offset"] for queue in queues) == 2
    (server,) = read["name-servers.json"]
    assert server["address"] == rmq_cluster.namesrv
    assert server["settings"]["orderMessageEnable"] == "false"
    assert read["accounts.json"]["users"] == []


def test_a_topic_whose_name_is_like_that_of_a_secret_is_in_it(bundle, rmq_cluster):
    rmq_cluster.create_topic("password-reset-tokens", queues=3)
    _, files, _ = bundle()
    read = {name: json.loads(data) for name, data in files.items()}
    names = [each.get("topicName") for each in read["topics.json"]]
    assert "password-reset-tokens" in names
    (route,) = [r for r in read["routes.json"] if r["topic"] == "password-reset-tokens"]
    assert route["queues"][0]["read_queue_nums"] == 3
    assert read["manifest.json"]["secrets"]["removed"] == 0


def test_only_the_owner_can_read_it(bundle, tmp_path):
    for out in ("b.tar.gz", "b.zip"):
        bundle(out=out)
        assert stat.S_IMODE(os.stat(tmp_path / out).st_mode) == 0o600


def test_an_existing_file_stays_unless_it_is_to_be_replaced(bundle, tmp_path, capsys):
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    code = run(["bundle", "--out", "b.tar.gz", "-n", "127.0.0.1:1"])
    assert (code, path.read_text()) == (2, "mine")
    assert capsys.readouterr().err == (
        "error: b.tar.gz exists already\nhint: add --overwrite to replace it\n"
    )
    code, files, _ = bundle("--overwrite")
    assert (code, list(files)) == (0, FILES)


def test_a_file_that_appears_while_servers_are_asked_stays(
    bundle, rmq_cluster, tmp_path
):
    path = tmp_path / "b.zip"
    rmq_cluster.faults.observe(
        code=RequestCode.GET_NAMESRV_CONFIG,
        on_request=lambda _: path.write_text("mine"),
    )
    code = run(["bundle", "--out", "b.zip", "-n", rmq_cluster.namesrv])
    assert (code, path.read_text()) == (2, "mine")


def test_the_settings_in_use_are_in_it(bundle):
    _, files, _ = bundle(
        *("--timeout", "700ms", "--address-map", "10.0.0.1:10911=127.0.0.1:2"),
        *("--tls-server-name", "broker.example", "--tls-insecure"),
        namesrv="127.0.0.1:1",
    )
    found = json.loads(files["rmq.json"])
    assert found["namesrv"] == ["127.0.0.1:1"]
    assert found["timeout_ms"] == 700
    assert found["address_map"] == {"10.0.0.1:10911": "127.0.0.1:2"}
    assert found["tls"] == {
        "ca_file": None,
        "cert_file": None,
        "key_file": None,
        "server_hostname": "broker.example",
        "insecure": True,
    }
    assert found["profile"] is None


def test_dead_letters_that_are_not_known_are_named(bundle, rmq_cluster):
    rmq_cluster.create_topic("%DLQ%billing", queues=1)
    rmq_cluster.send("%DLQ%billing", ["x"])
    _, files, _ = bundle()
    (letters,) = json.loads(files["dead-letters.json"])
    assert (letters["group"], letters["count"]) == ("billing", 1)
    assert letters["new_in_last_hour"] == 1
    rmq_cluster.faults.add(
        faults.answer(16, "not for you"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="%DLQ%billing",
    )
    code, files, _ = bundle("--overwrite")
    found = listed(files, "dead-letters.json")
    assert (code, found["status"]) == (6, "partial")
    assert list(found["errors"]) == ["group billing"]
    assert "not for you" in found["errors"]["group billing"]


@pytest.mark.parametrize("out", ["b.rar", "b", ".zip"])
def test_a_name_that_does_not_tell_the_kind_is_refused_before_anything_is_read(
    out, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(["bundle", "--out", out, "-n", "127.0.0.1:1"]) == 2
    assert "does not say what kind" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_name_the_archive_is_named_after_the_time(
    rmq_cluster, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(["bundle", "-n", rmq_cluster.namesrv]) == 0
    (name,) = [path.name for path in tmp_path.iterdir()]
    assert re.fullmatch(r"rmq-bundle-\d{8}T\d{6}Z\.tar\.gz", name)
    assert name in capsys.readouterr().err


def test_bodies_are_in_it_only_if_asked_for(bundle, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [f"body-{number:02}" for number in range(12)])
    _, files, _ = bundle()
    assert b"body-" not in b"".join(files.values())
    code, files, _ = bundle("--messages", rmq_topic, out="m.zip")
    assert code == 0
    found = json.loads(files["messages.json"])
    bodies = {record["body"] for record in found}
    assert len(bodies) == len(found) == 10
    assert bodies < {f"body-{number:02}" for number in range(12)}


def test_they_are_the_newest_of_each_topic_in_order(bundle, rmq_cluster, rmq_topic):
    rmq_cluster.create_topic("other", queues=1)
    for number in range(13):
        rmq_cluster.send(rmq_topic, [f"body-{number:02}"])
    rmq_cluster.send("other", ["of another topic"])
    words = []
    for topic in (rmq_topic, "other", rmq_topic):
        words += ["--messages", topic]
    code, files, _ = bundle(*words)
    assert code == 0
    assert [record["body"] for record in json.loads(files["messages.json"])] == [
        *(f"body-{number:02}" for number in range(3, 13)),
        "of another topic",
    ]


@pytest.mark.slow
def test_they_are_the_newest_also_if_they_are_large(bundle, rmq_cluster):
    """A broker bounds the bytes of an answer, and begins with the oldest messages."""
    rmq_cluster.create_topic("large", queues=1)
    rmq_cluster.send("large", [f"{number:02}" * 50_000 for number in range(12)])
    code, files, _ = bundle("--messages", "large")
    assert code == 0
    offsets = [each["queue_offset"] for each in json.loads(files["messages.json"])]
    assert offsets == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def listed(files, name):
    """Return what the manifest says of a file."""
    manifest = json.loads(files["manifest.json"])
    (found,) = [each for each in manifest["files"] if each["file"] == name]
    return found


def test_messages_that_cannot_be_read_are_named(bundle, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["a"] * 8)
    rmq_cluster.faults.add(
        faults.answer(1, "the disk is full"),
        code=RequestCode.PULL_MESSAGE,
        topic=rmq_topic,
        queue_id=2,
    )
    code, files, _ = bundle("--messages", rmq_topic, "--messages", "nobody")
    found = listed(files, "messages.json")
    assert (code, found["status"]) == (6, "partial")
    assert sorted(found["errors"]) == [f"{rmq_topic}@broker-a:2", "topic nobody"]
    assert "the disk is full" in found["errors"][f"{rmq_topic}@broker-a:2"]
    assert len(json.loads(files["messages.json"])) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "name", "who"),
    [
        ("GET_ALL_PRODUCER_INFO", "producers.json", "broker-a"),
        ("GET_TOPIC_STATS_INFO", "statistics.json", "broker-a"),
        ("GET_BROKER_CONFIG", "brokers.json", "broker-a"),
        ("GET_ALL_TOPIC_CONFIG", "topics.json", "broker-a"),
        ("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "groups.json", "broker-a"),
        ("GET_ROUTEINFO_BY_TOPIC", "routes.json", "topic orders"),
        ("GET_ALL_CONSUMER_OFFSET", "lag.json", "groups"),
    ],
)
def test_what_is_refused_is_named_beside_its_file(bundle, rmq_cluster, code, name, who):
    rmq_cluster.create_topic("orders")
    rmq_cluster.create_group("billing")
    rmq_cluster.faults.add(faults.answer(16, "not for you"), code=RequestCode[code])
    exit_code, files, err = bundle()
    found = listed(files, name)
    assert (exit_code, found["status"], list(found["errors"])) == (6, "partial", [who])
    assert "not for you" in found["errors"][who]
    assert "error: the archive is not complete: " in err
    assert err.endswith("\nhint: manifest.json in it says what is missing\n")


@pytest.mark.parametrize(
    ("code", "name"),
    [("AUTH_LIST_USER", "accounts.json"), ("GET_NAMESRV_CONFIG", "name-servers.json")],
)
def test_a_file_of_which_nothing_could_be_read_has_failed(
    bundle, rmq_cluster_factory, code, name
):
    cluster = rmq_cluster_factory(settings={"authentication_enabled": True})
    cluster.faults.add(faults.answer(16, "not for you"), code=RequestCode[code])
    exit_code, files, _ = bundle(namesrv=cluster.namesrv)
    found = listed(files, name)
    assert (exit_code, found["status"], name in files) == (6, "failed", False)
    assert "not for you" in f"{found['reason']} {found['errors']}"


def test_what_is_unknown_of_one_group_is_named_beside_each_file_that_lacks_it(
    bundle, rmq_cluster
):
    """cluster.json and doctor.json were called ok, and no row had a reason."""
    rmq_cluster.create_topic("orders")
    for name in ("audit", "billing"):
        rmq_cluster.create_group(name)
    denied = faults.answer(16, "no permission for billing")
    for code in (
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_CONSUME_STATS,
    ):
        rmq_cluster.faults.add(denied, code=code, group="billing")
    code, files, _ = bundle()
    assert code == 6
    for name in ("cluster.json", "doctor.json", "lag.json"):
        found = listed(files, name)
        assert (found["status"], "for billing" in found["reason"]) == ("partial", True)
    assert listed(files, "topics.json")["reason"] is None


def test_topics_beyond_the_limit_are_counted(bundle, rmq_cluster, monkeypatch):
    monkeypatch.setattr(parts, "STATISTICS_TOPICS_MAX", 2)
    for topic in ("a", "b"):
        rmq_cluster.create_topic(topic, queues=1)
    code, files, _ = bundle()
    assert (code, listed(files, "statistics.json")["errors"]) == (0, {})
    assert [q["stored"] for q in json.loads(files["statistics.json"])] == [None, None]
    rmq_cluster.create_topic("c", queues=1)
    code, files, _ = bundle("--overwrite")
    assert (code, listed(files, "statistics.json")["errors"]) == (
        6,
        {"topics": "not asked about 1 more topic"},
    )
    topics = [queue["topic"] for queue in json.loads(files["statistics.json"])]
    assert topics == ["a", "b"]


@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_named(rmq_cluster_factory, bundle):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    code, files, err = bundle(namesrv=cluster.namesrv)
    manifest = json.loads(files["manifest.json"])
    assert code == 6
    assert [each["server"] for each in manifest["did_not_answer"]] == ["broker-b"]
    address = cluster.broker("broker-b").address
    assert re.fullmatch(
        r"b\.tar\.gz: [0-9,]+ bytes; secrets were removed in 0 places\n"
        rf"error: the archive is not complete: broker-b: {address} closed the"
        " connection without sending an answer\n"
        "hint: manifest.json in it says what is missing\n",
        err,
    )
    states = {each["file"]: each["status"] for each in manifest["files"]}
    assert states["brokers.json"] == "partial"
    assert states["name-servers.json"] == "ok"
    topics = json.loads(files["topics.json"])
    assert {each["broker_name"] for each in topics} == {"broker-a"}


def test_a_refusal_is_in_the_manifest(bundle, rmq_cluster):
    rmq_cluster.faults.add(
        faults.answer(16, "no permission"), code=RequestCode.GET_BROKER_CONFIG
    )
    code, files, _ = bundle()
    manifest = json.loads(files["manifest.json"])
    assert code == 6
    (silent,) = manifest["did_not_answer"]
    assert silent["server"] == "broker-a"
    assert "no permission" in silent["error"]


@pytest.mark.slow
def test_without_any_server_there_is_an_archive_and_exit_code_5(bundle):
    code, files, err = bundle(namesrv="127.0.0.1:1")
    assert code == 5
    assert list(files) == ["manifest.json", "rmq.json"]
    manifest = json.loads(files["manifest.json"])
    states = {each["file"]: each["status"] for each in manifest["files"]}
    assert states.pop("rmq.json") == "ok"
    assert set(states.values()) == {"failed"}
    assert "error: no server answered: cannot connect to 127.0.0.1:1: " in err


@pytest.mark.slow
def test_users_and_rules_are_in_it_without_passwords(
    rmq_cluster_factory, bundle, tmp_path
):
    cluster = rmq_cluster_factory(brokers=2, settings={"authentication_enabled": True})
    password = tmp_path / "password"
    password.write_text("correct horse")
    password.chmod(0o600)
    words = ["user", "create", "alice", "--password-file", str(password)]
    for each in (words, ["rule", "create", "alice", "Topic:orders", "Pub"]):
        assert run(["acl", *each, "-n", cluster.namesrv, "--yes"]) == 0
    code, files, _ = bundle(namesrv=cluster.namesrv)
    assert code == 0
    assert json.loads(files["accounts.json"]) == {
        "users": [
            {
                "user": "alice",
                "user_type": "Normal",
                "user_status": "enable",
                "brokers": ["broker-a", "broker-b"],
                "error": None,
            }
        ],
        "rules": [
            {
                "user": "alice",
                "resource": "Topic:orders",
                "actions": ["Pub"],
                "decision": "Allow",
                "source_ips": [],
                "policy_type": "Custom",
                "brokers": ["broker-a", "broker-b"],
                "error": None,
            }
        ],
        "without": [],
    }
    assert b"correct horse" not in b"".join(files.values())


def test_a_cluster_without_access_control_says_so(bundle, rmq_cluster_factory):
    """Nothing is missing then: there are no users."""
    _, files, _ = bundle()
    assert json.loads(files["accounts.json"])["without"] == [
        "access control is off: authenticationMetadataProvider is not set"
    ]
    old = rmq_cluster_factory(like="4.6.0")
    _, files, _ = bundle(namesrv=old.namesrv, out="old.zip")
    manifest = json.loads(files["manifest.json"])
    states = {each["file"]: each["status"] for each in manifest["files"]}
    assert states["accounts.json"] == "ok"
    assert json.loads(files["accounts.json"])["without"] == [
        "access control 2.0 needs RocketMQ 5.3.0, and broker-a has 4.6.0"
    ]


def secret(number):
    return f"sEk{number:02}-{number * 7919 % 9973:04}/zZ+q"


def escaped(text):
    return "".join(f"\\u{ord(each):04x}" for each in text)


def b64(text):
    return base64.b64encode(text.encode()).decode()


def test_of_more_than_fifty_planted_secrets_none_is_in_the_archive(
    bundle, rmq_cluster, rmq_topic, tmp_path, monkeypatch
):
    """They are planted wherever a cluster and a user have them, plain and encoded."""
    s = [secret(number) for number in range(52)]
    settings = {
        "tlsKeyPassword": s[0],
        "tls.server.keyPassword": s[1],
        "initAuthenticationUser": json.dumps({"username": "u", "password": s[2]}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": s[3], "secretKey": s[4]}
        ),
        "metricsGrpcExporterHeader": f"Authorization:Bearer {s[5]}",
        "metricsGrpcExporterTarget": f"https://u:{s[6]}@metrics.example:4317/v1",
        "objectStoreAccessKey": s[7],
        "objectStoreSecretKey": s[8],
        "storeUrl": f"jdbc:mysql://db/x?user=u&password={s[9]}",
        "javaOptions": f"-Xmx1g --keystore-password {s[10]} -Dapi.key={s[11]}",
        "extra": f'{{"nested": {{"secret_key": "{escaped(s[12])}"}}}}',
        "extra2": json.dumps(json.dumps({"token": s[13]})),
        "extra3": b64(json.dumps({"secretKey": s[14]})),
        "extra4": b64(b64(f"password={s[15]}")),
        "extra5": quote(f"password={s[16]}", safe=""),
        "extra6": f'{{"pass\\u0077ord": "{s[17]}"}}',
        "xml": f"<x><password>{s[18]}</password></x>",
        "pem": f"-----BEGIN PRIVATE KEY-----\\n{s[19]}\\n-----END PRIVATE KEY-----",
        "apiToken": s[20],
        "sasl.jaas.config": f'Login required username="u" password="{s[21]}";',
        "redis": f"redis://:{s[22]}@cache:6379/0",
        "cookie": f"session={s[23]}",
        # The same secrets once more, where no name gives them away.
        "echo1": f"the key is {s[3]}",
        "echo2": b64(s[4] + " and more"),
        "echo3": escaped(s[0]),
        "echo4": s[8].encode().hex(),
        "echo5": f"x{b64('u:' + s[7])}",
        # Known to rmq only.
        "echo6": f"of the environment: {s[24]}",
        "echo7": b64(s[25]),
        "echo8": escaped(s[26]),
        "echo9": f'{{"a": "{escaped(s[27])[:-6]}{s[27][-1]}"}}',
        "echo10": quote(s[28], safe=""),
    }
    # A setting with the line break of a key is two lines of the answer.
    plant_settings(rmq_cluster, **settings)
    plant_runtime(
        rmq_cluster,
        remoteCredential=s[29],
        bootNote=f"started with {s[30]}",
        authHeader=f"Basic {b64('u:' + s[31])}",
        dumpUrl=f"http:\\/\\/u:{s[32]}@dump\\/x",
        encoded=b64(f'{{"a": "{escaped(s[33])}"}}'),
    )
    rmq_cluster.faults.add(
        faults.answer(
            0,
            body=(
                f"kvConfigPath=/x\nadminPassword={s[34]}\nnote={s[35]}\n"
                f"escaped={escaped(s[36])}\nbase={b64('x' + s[37])}\n"
            ).encode(),
        ),
        code=RequestCode.GET_NAMESRV_CONFIG,
    )
    rmq_cluster.faults.add(
        faults.answer(1, f"login at ldap://cn=x:{s[38]}@ldap failed, secret={s[39]}"),
        code=RequestCode.GET_ALL_PRODUCER_INFO,
    )
    rmq_cluster.faults.add(
        faults.answer(
            0,
            body=json.dumps(
                [{"username": "app", "password": s[50], "userType": "Normal"}]
            ).encode(),
        ),
        code=RequestCode.AUTH_LIST_USER,
    )
    policy = {"resource": f"Topic:password={s[51]}", "actions": ["Pub"]}
    policy |= {"decision": "Allow"}
    rmq_cluster.faults.add(
        faults.answer(
            0,
            body=json.dumps(
                [
                    {
                        "subject": "User:app",
                        "policies": [{"policyType": "Custom", "entries": [policy]}],
                    }
                ]
            ).encode(),
        ),
        code=RequestCode.AUTH_LIST_ACL,
    )
    rmq_cluster.send(
        rmq_topic,
        [
            json.dumps({"password": s[40]}),
            b64(json.dumps({"card": {"api_key": s[41]}})),
            f"plain {s[42]}",
            f"Bearer {s[43]}",
            b"\xff\xfe" + f"password={s[44]}".encode(),
        ],
    )
    for number, name in enumerate(
        (
            *("RMQ_ACCESS_KEY", "RMQ_SECRET_KEY", "RMQ_SECURITY_TOKEN"),
            *("RMQ_REGISTRY_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MY_APP_PASSWORD"),
            *("CI_TOKEN", "DB_PASS"),
        )
    ):
        known = (24, 25, 26, 28, 30, 35, 36, 37)[number]
        monkeypatch.setenv(name, s[known])
    config = tmp_path / "config" / "rmq"
    config.mkdir(parents=True)
    key = config / "tls.key"
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{b64(s[45] * 2)}\n-----END PRIVATE")
    login = config / "login"
    login.write_text(f"secret_key: {s[46]}\naccess_key: {s[47]}\n")
    login.chmod(0o600)
    (config / "config.toml").write_text(
        f"""
        [profiles.one]
        namesrv = "{rmq_cluster.namesrv}"
        access_key = "{s[42]}"
        secret_key = "{s[27]}"
        [profiles.two]
        namesrv = "h:1"
        credentials_file = "login"
        tls_cert = "c.pem"
        tls_key = "tls.key"
        [profiles.three]
        namesrv = "h:2"
        access_key = "{s[48]}"
        secret_key = "{s[49]}"
        """
    )
    (config / "config.toml").chmod(0o600)
    code, files, err = bundle("--profile", "one", "--messages", rmq_topic, "-o", "json")
    assert code == 6, err  # the producers were refused
    assert len(files) == len(FILES) + 1
    everything = "".join(data.decode() for data in files.values())
    assert everything.count("<removed>") > 40
    accounts = json.loads(files["accounts.json"])
    assert [each["user"] for each in accounts["users"]] == ["app"]
    assert [each["actions"] for each in accounts["rules"]] == [["Pub"]]
    inside = everything + err
    assert rmq_cluster.namesrv in everything
    assert rmq_topic in everything
    leaves = "\n".join(map(str, leaves_of(list(map(json.loads, files.values())))))
    found = [each for each in s if is_in(each, inside) or is_in(each, leaves)]
    assert found == []


def leaves_of(value):
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from leaves_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves_of(each)
    else:
        yield value


def is_in(text, everything):
    """Whether a text is in another one, also encoded; by other means than rmq's."""
    data = text.encode()
    forms = [text, escaped(text), quote(text, safe=""), data.hex(), json.dumps(text)]
    # Base64 of a text begins at any of three places of its digits.
    forms += [
        base64.b64encode(b"\0" * pad + data)[(pad * 8 + 5) // 6 :].decode()[:-4]
        for pad in range(3)
    ]
    plain = re.sub(
        r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), everything
    ).replace("\\", "")
    views = (everything, plain, unquote(everything))
    return any(form in view for form in forms for view in views)
