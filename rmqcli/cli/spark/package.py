"""`rmq spark package`: pack rmqcli as a zip for the executors of a Spark cluster.

`rmqcli.spark.package` creates the zip. Neither Spark nor Java is started.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rmqcli import __version__
from rmqcli.cli.options import command_options, option, switch
from rmqcli.cli.ui.messages import Messages
from rmqcli.errors import RefusedError, RmqError, UsageError


@command_options(has_common=False)
def package(
    out: str | None = option(
        metavar="FILE", help="File to write.  [default: rmqcli-VERSION.zip]"
    ),
    force: bool = switch(help="Replace an existing file."),
) -> None:
    """Write rmqcli as a zip that the executors of a Spark cluster can import.

    Example: rmq spark package --out rmqcli.zip

    The zip is for programs that use the format rocketmq; rmq export sends one by
    itself. The other packages that the executors' Python needs are listed on stderr.
    """
    from rmqcli.spark.extra import require_extra

    require_extra("rmq spark package")
    from rmqcli.files import create_file, replace_file
    from rmqcli.spark.export.executors import PACKAGES
    from rmqcli.spark.package import package_bytes

    path = Path(out or f"rmqcli-{__version__}.zip")
    if path.suffix != ".zip":
        raise UsageError(
            f"{path} does not end in .zip, as Python and Spark require",
            hint=f"write --out {shlex.quote(str(path))}.zip",
        )
    data = package_bytes()
    try:
        (replace_file if force else create_file)(path, data)
    except FileExistsError as error:
        raise RefusedError(
            f"{path} already exists", hint="replace it with --force"
        ) from error
    except OSError as error:
        raise RmqError(f"cannot write {path}: {error.strerror or error}") from error
    python = ".".join(map(str, sys.version_info[:2]))
    messages = Messages()
    messages.info(f"wrote {path}: rmqcli {__version__}, {len(data):,} bytes")
    messages.info(
        f"the executors also need Python {python}, the version of this machine, with"
        f" {', '.join(PACKAGES)}: install them there, or pack an environment with"
        " venv-pack and send it with --archives"
    )
    word = shlex.quote(str(path))
    sys.stdout.write(
        f"spark-submit --py-files {word} PROGRAM.py\n"
        f"spark.sparkContext.addPyFile({str(path)!r})\n"
        f"spark.addArtifacts({str(path)!r}, pyfile=True)\n"
    )
