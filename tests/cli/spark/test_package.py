"""`rmq spark package`: the zip that it writes, and its output."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from rmqcli import __version__
from rmqcli.cli.main import run


@pytest.fixture
def pack(capsys, monkeypatch, tmp_path):
    """Runs `rmq spark package` in an empty folder; returns code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run_it(*words):
        code = run(["spark", "package", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


def test_the_zip_is_written_and_the_lines_that_use_it_are_printed(pack, tmp_path):
    code, out, err = pack()
    name = f"rmqcli-{__version__}.zip"
    assert code == 0
    assert out.splitlines() == [
        f"spark-submit --py-files {name} PROGRAM.py",
        f"spark.sparkContext.addPyFile('{name}')",
        f"spark.addArtifacts('{name}', pyfile=True)",
    ]
    assert f"wrote {name}: rmqcli {__version__}, " in err
    assert "with backports.zstd, lz4, numpy, pyarrow: install them there" in err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert zipfile.ZipFile(name).testzip() is None


def test_an_existing_file_is_replaced_only_with_force(pack):
    Path("a b.zip").write_text("mine")
    code, out, err = pack("--out", "a b.zip")
    assert (code, out) == (7, "")
    assert err == "error: a b.zip already exists\nhint: replace it with --force\n"
    assert Path("a b.zip").read_text() == "mine"
    code, out, _ = pack("--out", "a b.zip", "--force")
    assert (code, out.splitlines()[0]) == (
        0,
        "spark-submit --py-files 'a b.zip' PROGRAM.py",
    )
    first = Path("a b.zip").read_bytes()
    assert pack("--out", "again.zip")[0] == 0
    assert Path("again.zip").read_bytes() == first


def test_a_name_that_python_cannot_import_from_is_a_usage_error(pack, tmp_path):
    code, _, err = pack("--out", "rmqcli.tar.gz")
    assert code == 2
    assert "rmqcli.tar.gz does not end in .zip" in err
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(pack):
    code, _, err = pack("--out", "none/rmqcli.zip")
    assert code == 1
    assert "cannot write none/rmqcli.zip: No such file or directory" in err
