"""Targets of tables, and the packages that fit each version of PySpark."""

from __future__ import annotations

import pytest

from rmqcli.errors import ConfigError, UsageError
from rmqcli.spark.tables.formats import (
    DELTA,
    ICEBERG,
    absolute,
    check_target,
    is_path,
    local_path,
    missing_error,
    parse_name,
    quoted,
    settings_of,
    unfit_error,
)
from tests.kit.rows import each_row


@pytest.mark.parametrize(
    ("text", "parts", "sql"),
    [
        ("t", ("t",), "`t`"),
        ("lake.db.orders", ("lake", "db", "orders"), "`lake`.`db`.`orders`"),
        ("lake.`a.b`.t-1", ("lake", "a.b", "t-1"), "`lake`.`a.b`.`t-1`"),
        ("`a``b`", ("a`b",), "`a``b`"),
    ],
)
def test_names(text, parts, sql):
    assert parse_name(text) == parts
    assert quoted(parts) == sql


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a b", "a;drop", "`a", "a`b`"]
)
def test_what_is_not_a_name(text):
    with pytest.raises(UsageError, match="is not the name of a table"):
        parse_name(text)


@pytest.mark.parametrize(
    ("target", "default_fs", "path"),
    [
        ("/x/t", "file:///", "/x/t"),
        ("/x/../y/t/", "file:///", "/y/t"),
        ("/x/t", "hdfs://namenode:8020", None),
        ("file:///x/t", "hdfs://namenode:8020", "/x/t"),
        ("file:/x/t", "file:///", "/x/t"),
        ("FILE:///x/t", "file:///", "/x/t"),
        ("s3a://bucket/t", "file:///", None),
        ("hdfs:///x/t", "file:///", None),
    ],
)
def test_a_table_is_local_by_its_scheme_or_by_hadoop_s_default(
    target, default_fs, path
):
    assert local_path(target, default_fs=default_fs) == path


def test_paths(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert is_path("./t")
    assert is_path("s3a://b/t")
    assert not is_path("db.t")
    assert absolute("./t") == str(tmp_path / "t")
    assert absolute("/x/t") == "/x/t"
    assert absolute("s3a://b/t") == "s3a://b/t"
    assert absolute("file:/x") == "file:/x"


CATALOG = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}


@pytest.mark.parametrize(
    ("kind", "target", "given"),
    [
        (DELTA, "./t", {}),
        (DELTA, "s3a://b/t", {}),
        (DELTA, "db.t", {"spark.sql.catalogImplementation": "hive"}),
        (DELTA, "t", {"spark.sql.catalog.spark_catalog": "io.unitycatalog.X"}),
        (DELTA, "unity.db.t", {"spark.sql.catalog.unity": "io.unitycatalog.X"}),
        (ICEBERG, "lake.db.t", CATALOG),
        (ICEBERG, "db.t", {**CATALOG, "spark.sql.defaultCatalog": "lake"}),
    ],
)
def test_targets_that_a_catalog_has(kind, target, given):
    check_target(kind, target, given)


@each_row(
    ("kind", "target", "error", "words"),
    [
        (DELTA, "t", ConfigError, "forgets names when the session ends"),
        (DELTA, "spark_catalog.db.t", ConfigError, "when the session ends"),
        (DELTA, "unity.db.t", ConfigError, "catalog unity of the table"),
        (DELTA, "a b", UsageError, "not the name of a table"),
        (DELTA, "db.t", ConfigError, "when the session ends"),
        (ICEBERG, "lake.db.t", ConfigError, "no catalog lake of Iceberg"),
        (ICEBERG, "./t", UsageError, "is a path, but an Iceberg table needs a name"),
    ],
)
@each_row("given", [{}, dict(DELTA.settings)])
def test_targets_that_no_catalog_has(kind, target, error, words, given):
    with pytest.raises(error, match=words):
        check_target(kind, target, given)


EXTENSIONS = "spark.sql.extensions"
SESSION_CATALOG = "spark.sql.catalog.spark_catalog"
WAREHOUSE = "spark.sql.warehouse.dir"
HIVE = {"spark.sql.catalogImplementation": "hive"}


@pytest.mark.parametrize(
    ("kind", "target", "given", "made"),
    [
        (DELTA, "./t", {}, {EXTENSIONS, SESSION_CATALOG, WAREHOUSE}),
        (DELTA, "./t", {EXTENSIONS: "mine"}, {SESSION_CATALOG, WAREHOUSE}),
        (DELTA, "./t", {WAREHOUSE: "/w"}, {EXTENSIONS, SESSION_CATALOG}),
        # these tables must exist after the session
        (DELTA, "db.t", HIVE, {EXTENSIONS, SESSION_CATALOG}),
        (DELTA, "db.t", {SESSION_CATALOG: "io.unitycatalog.X"}, {EXTENSIONS}),
        (ICEBERG, "lake.db.t", CATALOG, {WAREHOUSE}),
        (ICEBERG, "spark_catalog.db.t", {SESSION_CATALOG: "x"}, set()),
    ],
)
def test_settings_are_made_that_the_user_has_not_made(kind, target, given, made):
    found = settings_of(kind, target, given, folder="/scratch")
    assert set(found) == made
    assert found.get(WAREHOUSE, "/scratch/warehouse") == "/scratch/warehouse"
    if EXTENSIONS in made:
        assert found[EXTENSIONS] == "io.delta.sql.DeltaSparkSessionExtension"


@pytest.mark.parametrize(
    ("kind", "pyspark", "hint"),
    [
        (
            DELTA,
            "4.0.5",
            "give conf='spark.jars.packages=io.delta:delta-spark_2.13:4.0.0'",
        ),
        (
            ICEBERG,
            "4.0.5",
            (
                "give conf='spark.jars.packages="
                "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0'"
            ),
        ),
        (
            DELTA,
            "4.3.0",
            (
                "no release of Delta Lake for PySpark 4.3 is known to rmq: install"
                " pyspark==4.2.* and give"
                " conf='spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0'"
            ),
        ),
    ],
)
def test_the_hint_names_the_package_for_this_pyspark(kind, pyspark, hint):
    error = missing_error(kind, pyspark=pyspark)
    assert error.message == (
        f"{kind.title} is not among the packages of this Spark session (PySpark"
        f" {pyspark}, Scala 2.13)"
    )
    assert error.hint == hint
    given = {"spark.jars.packages": "io.delta:delta-spark_2.13:4.3.1"}
    unfit = unfit_error(kind, "NoSuchMethodError: x", pyspark=pyspark, given=given)
    assert unfit.message == (
        f"{kind.title} of this Spark session (io.delta:delta-spark_2.13:4.3.1) does"
        f" not work with PySpark {pyspark} (Scala 2.13): NoSuchMethodError: x"
    )
    assert unfit.hint == hint
