"""The settings with which Spark is started."""

from __future__ import annotations

from dataclasses import replace

from rmqcli.spark.session import SessionOptions, settings


def test_an_application_on_a_cluster_keeps_its_web_page_and_the_settings_of_conf():
    options = SessionOptions(
        name="n",
        log_path="log",
        workers_max=1,
        conf=(("spark.executor.memory", "2g"), ("spark.app.name", "mine")),
        archives=("a.tar.gz#a", "b.tar.gz"),
    )
    local = settings(options, "folder")
    assert local["spark.ui.enabled"] == "false"
    assert local["spark.executor.memory"] == "2g"
    cluster = settings(replace(options, master="spark://h:7077"), "folder")
    assert cluster == {
        "spark.app.name": "mine",
        "spark.master": "spark://h:7077",
        "spark.ui.showConsoleProgress": "false",
        "spark.archives": "a.tar.gz#a,b.tar.gz",
        "spark.executor.memory": "2g",
    }
