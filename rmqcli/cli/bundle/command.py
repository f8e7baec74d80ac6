"""The command `rmq bundle`: its options, what it prints, and its exit codes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rmqcli.cli.options import Common, command_options, option, switch
from rmqcli.cli.ui.output import (
    Column,
    emit_json,
    json_column,
    number_column,
    write_rows,
)
from rmqcli.errors import PartialError, RmqError, TransportError, UsageError
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.bundle.archive import BundlePart

COLUMNS = (
    Column("file", "file in the archive"),
    Column(
        "status",
        "ok, partial (not all of it is known), failed, or left out",
        states={
            "ok": "good",
            "partial": "warn",
            "failed": "bad",
            "left out": "bad",
        },
    ),
    number_column("bytes", "its length; null if it is not in the archive"),
    Column("what", "what it holds", priority=30),
    json_column("source", "the command that shows the same"),
    Column("reason", "why it is not, or not wholly, in the archive", priority=1),
    json_column(
        "errors",
        "servers that did not answer, and what else is not known, with the reasons",
    ),
    json_column("sha256", "checksum of its content"),
)


@command_options(fields=COLUMNS, changes=False)
def bundle(
    common: Common,
    out: str | None = option(
        metavar="FILE",
        help="Archive to write, .tar.gz or .zip (default: rmq-bundle-TIME.tar.gz).",
    ),
    overwrite: bool = switch(help="Replace the archive if it exists."),
    messages: list[str] | None = option(
        metavar="TOPIC",
        help="Also the newest 10 messages of this topic, with bodies; repeatable.",
    ),
) -> None:
    """Write one archive for a support case, without secrets.

    Example: rmq bundle
             rmq bundle --out case-4711.zip

    It holds versions, routes, topics, groups, lag, users and rules, the findings of rmq
    doctor, settings of brokers and name servers, statistics, and rmq's own settings.
    manifest.json says what was asked and what did not answer. Passwords, keys and
    tokens are removed, also encoded ones; names and addresses are not. It has bodies of
    messages only with --messages. Only you can read the file: look into it before you
    pass it on.

    The archive is written even if servers do not answer. The exit code is then 6, or 5
    if none answers.
    """
    from rmqcli.bundle import archive
    from rmqcli.bundle.redact import Redactor
    from rmqcli.cli.bundle.parts import read_parts
    from rmqcli.cli.bundle.secrets import known_secrets

    if out is not None:
        archive.check_suffix(out)
        if os.path.lexists(out) and not overwrite:
            raise _exists(out)
    with common.open_client() as client, client.ask_silent_once():
        redactor = Redactor(known_secrets(client.config, os.environ))
        at_ms = client.clock.epoch_ms()
        parts = list(
            read_parts(
                common,
                client,
                messages=messages or (),
                on_part=lambda what: common.messages.progress(f"reading {what}"),
            )
        )
    common.messages.clear_progress()
    path = out or f"{archive.default_name(at_ms)}.tar.gz"
    files = archive.render(parts, redactor)
    manifest = archive.manifest(
        files,
        redactor,
        about={"rmq": parts[0].data["rmq"], "namesrv": common.namesrv},
        at_ms=at_ms,
    )
    try:
        length = archive.write_archive(
            path, files, manifest, at_ms=at_ms, overwrite=overwrite
        )
    except FileExistsError:
        raise _exists(path) from None
    if common.output == "json":
        emit_json({"archive": path, "bytes": length, **manifest})
    else:
        rows = manifest["files"]
        write_rows(rows, columns=COLUMNS, fmt=common.output, color=common.use_color)
    common.messages.info(
        f"{path}: {length:,} bytes; secrets were removed in"
        f" {counted(redactor.count, 'place')}"
    )
    _raise_if_partial(common, parts, manifest)


def _exists(path: str) -> RmqError:
    return UsageError(f"{path} exists already", hint="add --overwrite to replace it")


def _raise_if_partial(
    common: Common, parts: list[BundlePart], manifest: dict[str, Any]
) -> None:
    """Raise an error if a server did not answer; the archive is written all the same.

    Without any answer the first part is rmq's own, and all others have failed.
    """
    bad = [each for each in manifest["files"] if each["status"] != "ok"]
    if not bad:
        return
    if len(parts) > 1 and all(part.data is None for part in parts[1:]):
        raise TransportError(
            f"no server answered: {bad[-1]['reason']}", address=common.namesrv_text
        )
    silent = manifest["did_not_answer"]
    if silent:
        what = f"{silent[0]['server']}: {silent[0]['error']}"
    else:
        what = f"{bad[0]['file']}: {bad[0]['reason']}"
    raise PartialError(
        f"the archive is not complete: {what}",
        hint="manifest.json in it says what is missing",
    )
