"""The client id: what a broker knows a member by. Members are sorted by it.

Source: ClientConfig#buildMQClientId, #changeInstanceNameToPID (4.9).
"""

from __future__ import annotations

_DEFAULT_INSTANCE = "DEFAULT"


def make_client_id(
    *,
    ip: str,
    instance_name: str | None,
    unit_name: str | None,
    pid: int,
    nanotime: int,
    is_broadcasting: bool,
) -> str:
    """`ip@instance[@unit]`.

    Without a name of its own a clustering member is `pid#nanotime`, so that no two are
    ever the same; a broadcasting one stays DEFAULT, for its offsets lie in a file of
    that name.
    """
    instance = instance_name or _DEFAULT_INSTANCE
    if instance == _DEFAULT_INSTANCE and not is_broadcasting:
        instance = f"{pid}#{nanotime}"
    client_id = f"{ip}@{instance}"
    return f"{client_id}@{unit_name}" if unit_name else client_id
