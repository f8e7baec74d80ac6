"""Exports into an object store: the contents of the bucket after each kind of end.

moto's server runs in a separate process, and the parts are written in this process.
`test_kill_points.py` tests kills at each call, and `test_remote_spark.py` tests Spark.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets

import pytest
from pyarrow import fs

from rmqcli.cli.main import run
from rmqcli.errors import (
    ConfigError,
    PartialError,
    RefusedError,
    StorageDeniedError,
    StorageError,
    StorageNotFoundError,
    StorageUnreachableError,
    UsageError,
)
from rmqcli.spark.export.executors import check_report, look
from rmqcli.spark.export.remote import RemoteStorage, translated
from rmqcli.spark.export.storage import storage_of
from rmqcli.spark.export.target import parse_target
from tests.kit.object_stores import ENVIRONMENT, google_server, s3_server
from tests.producer.stored import bodies
from tests.spark.export.inline import InlineRunner, SilentReport, expected, export_of
from tests.spark.export.sources import MadeCluster, MadeSource

pytest.importorskip("moto", reason="the extra dev has moto")

QUEUES = {0: (0, 250), 1: (40, 90)}


@pytest.fixture(scope="module", autouse=True)
def _environment():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def server(_environment):
    with s3_server() as server:
        server.make_bucket("exports")
        yield server


@pytest.fixture
def place(server):
    """A separate folder in the bucket for each test."""
    server.heal()
    return Place(server.url(f"exports/{secrets.token_hex(4)}"))


class Place:
    """A folder in the bucket, as an independent reader sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.storage = storage_of(url, {})
        assert isinstance(self.storage, RemoteStorage)
        self.filesystem = self.storage._fs
        self.folder = self.storage.target.inner(self.storage.root_of(url))

    def export(self, cluster=None, **options):
        cluster = cluster or MadeCluster(QUEUES)
        return export_of(self.url, cluster, disk=storage_of(self.url, {}), **options)

    def interrupted(self, *, stop_after=1, **options):
        runner = InlineRunner(stop_after=stop_after)
        with pytest.raises(KeyboardInterrupt):
            self.export(runner=runner, **options).run()

    def names(self, pattern="") -> list[str]:
        from pyarrow import fs

        found = self.filesystem.get_file_info(
            fs.FileSelector(self.folder, recursive=True, allow_not_found=True)
        )
        names = [info.path.removeprefix(f"{self.folder}/") for info in found
                 if info.is_file]  # fmt: skip
        return sorted(name for name in names if re.search(pattern, name))

    def rows(self) -> list[tuple[int, int]]:
        """Return (queue id, queue offset) of each row that readers see."""
        import pyarrow.dataset as ds

        if not self.names(r"\.parquet$"):
            return []
        table = ds.dataset(
            self.folder, filesystem=self.filesystem, format="parquet"
        ).to_table(["queue_id", "queue_offset"], use_threads=False)
        columns = (table[name].to_pylist() for name in ("queue_id", "queue_offset"))
        return sorted(zip(*columns, strict=True))

    def write(self, name: str, text: str) -> None:
        with self.filesystem.open_output_stream(f"{self.folder}/{name}") as stream:
            stream.write(text.encode())


def test_a_whole_export_leaves_its_files_a_manifest_and_nothing_else(place):
    source = MadeSource(broken=frozenset({7}))
    cluster = MadeCluster(QUEUES, source)
    record = place.export(cluster, allow_undecodable=True).run()
    run = f"_rmq/runs/{record.run_id}"
    assert place.names() == [
        "_SUCCESS",
        "_rmq/manifest.json",
        f"{run}/plan.json",
        f"{run}/undecodable.jsonl",
        "orders.broker-a.q0.00000000000000000000-00000000000000000100.parquet",
        "orders.broker-a.q0.00000000000000000100-00000000000000000200.parquet",
        "orders.broker-a.q0.00000000000000000200-00000000000000000250.parquet",
        "orders.broker-a.q1.00000000000000000040-00000000000000000090.parquet",
    ]
    assert place.rows() == [pair for pair in expected(QUEUES) if pair != (0, 7)]
    lines = place.storage.read_text(
        f"{place.storage.target.root}/{run}/undecodable.jsonl"
    ).splitlines()
    assert [json.loads(line)["queue_offset"] for line in lines] == [7]


@pytest.mark.slow
def test_a_repeated_export_does_nothing_and_since_last_adds_new_messages(place):
    place.export().run()
    runner, report = InlineRunner(), SilentReport()
    place.export(runner=runner, report=report).run()
    assert (runner.runs, len(report.infos)) == ([], 1)
    grown = MadeCluster({0: (0, 300), 1: (40, 95)})
    place.export(grown, since_last=True).run()
    assert place.rows() == expected(grown.queues)
    assert place.names("manifest") == [
        "_rmq/manifest.json",
        "_rmq/manifest/00000001.json",
    ]
    again = place.export(grown, since_last=True, report=report).run()
    assert (again.parts, place.rows()) == ((), expected(grown.queues))


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", ["none", "date", "queue"])
def test_after_an_interrupt_the_same_command_writes_only_the_rest(place, partition_by):
    request = {"partition_by": partition_by}
    place.interrupted(stop_after=2, request=request)
    assert place.names("_SUCCESS|locks/") == []
    runner = InlineRunner()
    place.export(runner=runner, request=request).run()
    assert runner.runs == [[2, 3]]
    assert place.rows() == expected(QUEUES)
    assert place.names("part-|locks/") == []


def test_a_part_whose_file_is_gone_is_written_again(place):
    place.interrupted(stop_after=2)
    name = place.names(r"\.parquet$")[0]
    place.filesystem.delete_file(f"{place.folder}/{name}")
    runner = InlineRunner()
    place.export(resume=True, runner=runner).run()
    assert runner.runs == [[0, 2, 3]]
    assert place.rows() == expected(QUEUES)


def test_google_cloud_storage_behaves_the_same():
    """pyarrow lists folders of Google Cloud Storage differently from folders of S3."""
    pytest.importorskip("gcp_storage_emulator", reason="the extra dev has it")
    with google_server("exports") as address:
        options = f"anonymous=true&scheme=http&endpoint_override={address}"
        place = Place(f"gs://exports/out?{options}")
        place.interrupted(stop_after=2)
        runner = InlineRunner()
        place.export(resume=True, runner=runner).run()
        assert runner.runs == [[2, 3]]
        grown = MadeCluster({0: (0, 300), 1: (40, 95)})
        place.export(grown, since_last=True).run()
        assert place.rows() == expected(grown.queues)
        assert place.names("_SUCCESS|locks/|part-|manifest") == [
            "_SUCCESS",
            "_rmq/manifest.json",
            "_rmq/manifest/00000001.json",
        ]
        missing = Place(f"gs://nowhere/out?{options}")
        with pytest.raises(StorageNotFoundError, match="gs://nowhere does not exist"):
            missing.export().run()


def test_files_of_this_run_that_no_part_lists_are_removed(place):
    place.interrupted(stop_after=1)
    [name] = place.names(r"\.parquet$")
    stray = name.replace("00000100.parquet", "00000099.parquet")
    place.filesystem.copy_file(f"{place.folder}/{name}", f"{place.folder}/{stray}")
    assert len(place.names(r"\.parquet$")) == 2
    place.export(resume=True).run()
    assert place.rows() == expected(QUEUES)


@pytest.mark.parametrize("name", ["theirs.parquet", "_SUCCESS"])
def test_a_folder_with_foreign_files_is_refused_and_left_unchanged(place, name):
    place.write(name, "x")
    with pytest.raises(RefusedError, match=f"holds .*{name}"):
        place.export().run()
    assert place.names() == [name]


def test_a_file_larger_than_one_request_is_uploaded_completely(place):
    cluster = MadeCluster({0: (0, 900)}, MadeSource(body_bytes=20_000))
    request = {"rows_per_file": 1000, "compression": "none"}
    record = place.export(cluster, request=request).run()
    [(_, size)] = record.files()
    assert size > 15_000_000
    assert place.rows() == expected(cluster.queues)


@pytest.mark.slow
def test_a_storage_failure_exits_5_and_the_rest_is_written_later(place, server):
    class Fails(InlineRunner):
        def write(self, parts, context, /, *, watch):
            done = super().write(parts[:2], context, watch=watch)
            server.fail_after(0)
            return [*done, *super().write(parts[2:], context, watch=watch)]

    with pytest.raises(PartialError, match="2 of 4 parts could not be written"):
        place.export(runner=Fails()).run()
    server.heal()
    runner = InlineRunner()
    # The lease was not removed, so it is valid until its process has ended.
    with pytest.raises(RefusedError, match=r"another export .* is running") as refused:
        place.export(runner=runner).run()
    assert "if it was killed, try again in" in refused.value.hint
    [lock] = place.names("locks/")
    text = place.storage.read_text(f"{place.storage.target.root}/{lock}")
    place.write(lock, json.dumps({**json.loads(text), "started": "1"}))
    place.export(runner=runner).run()
    assert runner.runs == [[2, 3]]
    assert place.rows() == expected(QUEUES)
    assert place.names("locks/") == []


def test_a_second_export_is_refused_and_does_not_affect_the_first(place):
    class Second(InlineRunner):
        def write(self, parts, context, /, *, watch):
            with pytest.raises(RefusedError) as refused:
                place.export().run()
            assert f"process {os.getpid()} on" in refused.value.message
            return super().write(parts, context, watch=watch)

    place.export(runner=Second()).run()
    assert place.rows() == expected(QUEUES)
    assert place.names("locks/") == []


@pytest.mark.slow
def test_an_export_whose_lease_is_gone_writes_nothing_more(place):
    class TakenOver(InlineRunner):
        def write(self, parts, context, /, *, watch):
            done = super().write(parts[:1], context, watch=watch)
            for name in place.names("locks/"):
                place.filesystem.delete_file(f"{place.folder}/{name}")
            return [*done, *super().write(parts[1:], context, watch=watch)]

    with pytest.raises(PartialError, match="has lost its lease"):
        place.export(runner=TakenOver()).run()
    assert len(place.names(r"\.parquet$")) == 1
    place.export(resume=True).run()
    assert place.rows() == expected(QUEUES)


@pytest.mark.parametrize("option", ["resume", "since_last"])
def test_an_empty_folder_has_nothing_to_continue(place, option):
    with pytest.raises(UsageError, match=r"nothing to resume|no finished export"):
        place.export(**{option: True}).run()
    assert place.names() == []


def run_command(capfd, *arguments):
    """Run `rmq` in this process; return its exit code and the lines of its stderr."""
    code = run([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return code, out, err.splitlines()


def test_a_bucket_that_does_not_exist_exits_3(server, capfd, closed_port):
    code, out, (error, hint) = run_command(
        capfd,
        "export", "orders", "-n", closed_port, "--to-parquet", server.url("nowhere/x"),
    )  # fmt: skip
    assert (code, out) == (3, "")
    assert "s3://nowhere does not exist" in error
    assert "create the bucket" in hint


def test_an_endpoint_that_does_not_answer_exits_5(capfd, closed_port):
    url = f"s3://exports/x?endpoint_override={closed_port}&scheme=http"
    code, out, (error, hint) = run_command(
        capfd, "export", "orders", "-n", closed_port, "--to-parquet", url
    )
    assert (code, out) == (5, "")
    assert "s3://exports: " in error
    assert len(error) < 300
    assert "check that the endpoint is right" in hint


@pytest.mark.slow
def test_denied_keys_exit_4_and_are_not_shown(capfd, closed_port):
    with s3_server(INITIAL_NO_AUTH_ACTION_COUNT="0") as server:
        code, out, (error, hint) = run_command(
            capfd,
            "export", "orders", "-n", closed_port,
            "--to-parquet", server.url("exports/x"),
        )  # fmt: skip
    assert (code, out) == (4, "")
    assert "s3://exports" in error
    assert "check the credentials" in hint
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert ENVIRONMENT[name] not in error + hint


def test_a_bucket_can_be_neither_compacted_nor_hold_the_state_of_an_import(
    place, capfd, closed_port
):
    code, _, (error, *_) = run_command(capfd, "export-compact", place.url)
    assert code == 2
    assert "rmq cannot compact an export in s3 URLs, only in folders on" in error


def test_an_export_in_a_bucket_is_imported_into_a_topic(
    place, capfd, tmp_path, rmq_cluster_factory
):
    cluster = rmq_cluster_factory(queues=2)
    cluster.create_topic("copy", queues=2)
    place.export().run()
    command = ["import", "copy", "--from-parquet", place.url, "-n", cluster.namesrv,
               "--remap-queues"]  # fmt: skip
    code, _, (error, hint) = run_command(capfd, *command)
    assert code == 2
    assert f"the export is in {place.storage.target.root}" in error
    assert "--state DIR" in hint
    command += ["--state", tmp_path / "state", "-o", "json"]
    code, out, _ = run_command(capfd, *command)
    assert code == 0
    summary = json.loads(out)
    assert (summary["dir"], summary["sent"]) == (place.storage.target.root, 300)
    assert len(bodies(cluster, "copy")) == 300


def test_no_credentials_are_sent_to_the_workers(place):
    class Looks(InlineRunner):
        def write(self, parts, context, /, *, watch):
            sent = pickle.dumps(context)
            assert b"exports" in sent
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                assert ENVIRONMENT[name].encode() not in sent
            return super().write(parts, pickle.loads(sent), watch=watch)

    place.export(runner=Looks()).run()
    assert place.rows() == expected(QUEUES)


def test_an_executor_without_access_is_named(place, monkeypatch):
    """The executor sees neither the folder nor, with other keys, the lease."""
    report = look(0, folder="/not/there", disk=place.storage)
    assert report.storage_error is not None
    with pytest.raises(ConfigError, match="cannot use the storage") as raised:
        check_report(report, folder="/not/there")
    assert "their own credentials" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "message", "kind"),
    [
        (
            (
                "When uploading part for key 'a': AWS Error SLOW_DOWN (HTTP status 503)"
                " during UploadPart operation: Reduce it. (Request ID: XYZ)"
            ),
            "P: UploadPart: Reduce it. (SLOW_DOWN, HTTP status 503)",
            StorageUnreachableError,
        ),
        (
            (
                "When getting information for bucket 'b': AWS Error ACCESS_DENIED"
                " during HeadBucket operation: No response body."
            ),
            "P: HeadBucket: No response body. (ACCESS_DENIED)",
            StorageDeniedError,
        ),
        (
            "AWS Error NO_SUCH_BUCKET during PutObject operation: It does not exist",
            "P: PutObject: It does not exist (NO_SUCH_BUCKET)",
            StorageNotFoundError,
        ),
        (
            (
                "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last"
                " message of PerformWork() - CURL error [7]=Could not connect to server"
                " error_info={reason=, domain=})"
            ),
            "P: PerformWork() - CURL error [7]=Could not connect to server",
            StorageUnreachableError,
        ),
        (
            (
                "google::cloud::Status(UNAVAILABLE: Could not create a OAuth2 access"
                " token to authenticate the request.)"
            ),
            "P: Could not create a OAuth2 access token to authenticate the request.)",
            StorageDeniedError,
        ),
        ("Something else", "P: Something else", StorageError),
    ],
)
def test_an_error_of_the_storage_is_translated(text, message, kind):
    error = translated(OSError(text), "P")
    assert (error.message, type(error)) == (message, kind)


def hdfs_in(folder, url="hdfs://h:8020/a"):
    """An export's folder in HDFS, which here is a folder of this machine."""
    return RemoteStorage(
        parse_target(url),
        connect=lambda _: fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()),
    )


def test_a_file_in_hdfs_is_written_beside_and_replaces_the_one_before(tmp_path):
    storage = hdfs_in(tmp_path)
    assert storage.has_renames
    for text in ("first", "second"):
        storage.put_text("hdfs://h:8020/a/_rmq/manifest.json", text)
        files = [each for each in tmp_path.rglob("*") if each.is_file()]
        assert files == [tmp_path / "a" / "_rmq" / "manifest.json"]
        assert files[0].read_text() == text


@pytest.mark.parametrize("url", ["hdfs://h:8020/", "hdfs://h:8020/a"])
def test_files_below_the_root_of_hdfs_keep_their_names(tmp_path, url):
    storage = hdfs_in(tmp_path, url)
    root = storage.target.root
    folder = tmp_path / storage.target.inner(root).strip("/")
    for name in ("first.parquet", "broker=a/second.parquet", "_rmq/runs"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    assert list(storage.walk_files(root)) == [
        "broker=a/second.parquet",
        "first.parquet",
    ]
    assert storage.list_names(root) == ["_rmq", "broker=a", "first.parquet"]
