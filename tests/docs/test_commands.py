"""The commands of the README and the guides work as they stand."""

from __future__ import annotations

import pytest

from rmqcli.cli.arguments.arrange import arrange
from rmqcli.cli.arguments.typer_command import run_app
from rmqcli.cli.commands import COMMANDS
from tests.docs.commands import rmq_commands, run_commands, start_cluster
from tests.kit.documents import documents, every_example, examples
from tests.kit.rows import each_row
from tests.kit.spark import no_java, patiently

#: What the commands of a document have to write, among other things.
EXPECTED = {
    "proxies": [
        "2 sent, 0 failed",
        "joined group billing as ",
        "1 consumed; ",
        '"body":"{\\"id\\":',
        "tail joined group billing through ",
        "topic orders: NORMAL, 4 queues",
    ],
}


def documents_with(*notes):
    """Return the documents with commands whose fence says one of `notes`."""
    return [
        document for document in documents()
        if any(
            each.language == "sh" and each.note in notes and not each.has_mark
            for each in examples(document)
        )
    ]  # fmt: skip


def written_by(document, factory, home, *, spark=False):
    """Run a document's commands; return what they wrote to stdout and stderr."""

    def run():
        folder = home / str(len(list(home.iterdir())))
        folder.mkdir()
        cluster = start_cluster(factory, folder)
        done = run_commands(document, cluster, folder, spark=spark)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    return patiently(run) if spark else run()


@pytest.mark.slow
@pytest.mark.parametrize("document", documents_with(""))
def test_the_commands_of_a_document_work(document, rmq_cluster_factory, tmp_path):
    written = written_by(document, rmq_cluster_factory, tmp_path)
    assert [each for each in EXPECTED.get(document, []) if each not in written] == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(no_java() is not None, reason=no_java() or "")
@pytest.mark.parametrize(
    "document", [each for each in documents_with("spark") if each != "querying"]
)
def test_the_commands_with_spark_work(document, rmq_cluster_factory, tmp_path):
    """Those of `querying` have a test of their own, in tests/spark/sql."""
    written_by(document, rmq_cluster_factory, tmp_path, spark=True)


@each_row(
    "words",
    [
        words for each in every_example()
        if each.language == "sh" and each.note == "no_run"
        for words in rmq_commands(each.text)
    ],
    ids=" ".join,
)  # fmt: skip
def test_commands_that_are_not_run_have_options_that_exist(words):
    arranged = arrange(words, [entry.path for entry in COMMANDS])
    entry = max(
        (
            each for each in COMMANDS
            if arranged[: len(each.path.split())] == each.path.split()
        ),
        key=lambda each: len(each.path),
    )  # fmt: skip
    parsed = []
    rest = arranged[len(entry.path.split()) :]
    run_app(entry, rest, act=lambda *values: parsed.append(values))
    assert len(parsed) == 1
