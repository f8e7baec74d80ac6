"""One session of Spark for all modules of this folder: each would start a JVM."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture(scope="package")
def sql_session():
    from rmqcli.spark.sql.session import sql_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sql_session() as session:
            yield session
