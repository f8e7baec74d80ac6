"""The extra `rmqcli[spark]`: what `rmqcli.spark` needs and nothing else does."""

from __future__ import annotations

import importlib.util
from typing import Final

from rmqcli.errors import ConfigError

#: What the extra installs, by the names of the modules, and as it is called.
_PACKAGES: Final = {"pyspark": "PySpark", "pyarrow": "PyArrow", "numpy": "numpy"}


def require_extra(what: str) -> None:
    """Raise ConfigError if a package of the extra is not installed.

    `what` needs it: a command, or a name of the library. Nothing is loaded.
    """
    missing = [
        name
        for module, name in _PACKAGES.items()
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise ConfigError(
            f"{what} needs {' and '.join(missing)}, which the extra spark installs",
            hint="run: pip install 'rmqcli[spark]'",
        )
