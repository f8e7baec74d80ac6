"""The files that come with the exporter: a dashboard, and rules for alerts."""

from __future__ import annotations

from importlib.resources import files


def read_asset(name: str) -> str:
    """Return the text of `dashboard.json` or `rules.yml`."""
    return (files("rmqcli.exporter") / name).read_text(encoding="utf-8")
