"""Settings of Spark as arguments: `spark.NAME=VALUE`."""

from __future__ import annotations

from rmqcli.errors import TextError


def parse_spark_setting(
    text: str, *, example: str, no_master: str, instead: str
) -> tuple[str, str]:
    """Return the name and the value. Raises TextError for any other text.

    The master is refused, too: the error says `no_master`, with the hint `instead`.
    """
    key, equals, value = text.partition("=")
    what = hint = ""
    if not equals or key != key.strip() or not key.startswith("spark."):
        what, hint = "not a setting of Spark", f"write spark.NAME=VALUE, e.g. {example}"
    elif key == "spark.master":
        what, hint = no_master, instead
    if what:
        raise TextError(text, what, start=0, end=len(key) or len(text), hint=hint)
    return key, value
