"""`rmq profile add`, `use` and `remove`: changes of the user's file of profiles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rmqcli.cli.configuration.choose import PROFILE_VARIABLE, choose
from rmqcli.cli.configuration.places import NO_PROFILE
from rmqcli.cli.configuration.profile import OUTPUTS, check_name, read_profile
from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import (
    SERVER_NAMES,
    Common,
    argument,
    command_options,
    endpoints_option,
    option,
    parse_profile_name,
    plaintext_option,
    switch,
)
from rmqcli.cli.profile.change import (
    locked_config,
    put_profile,
    remove_profile,
    use_profile,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.config import NAMESRV_DEFAULT
from rmqcli.dataclass import dataclass
from rmqcli.errors import RefusedError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """The options of `rmq profile add`, beside the common ones."""

    name: str = argument(
        metavar="PROFILE", parser=check_name, help="Name of the new profile."
    )
    endpoints: Any = endpoints_option()
    plaintext: bool = plaintext_option()
    credentials_command: str | None = option(
        metavar="COMMAND",
        help="Command that prints access key and secret key, as a file has them.",
    )
    credentials_environment: bool = switch(
        help="Use RMQ_ACCESS_KEY and RMQ_SECRET_KEY with this profile."
    )
    default_output: str | None = option(
        choices=OUTPUTS, help="Output format of commands that have it."
    )
    time_zone: str | None = option(
        metavar="NAME", help="Zone of times without one: Europe/Berlin."
    )
    read_only: bool = switch(help="Refuse every change of the cluster.")
    protected: bool = switch(help="Have changes confirmed with the profile's name.")
    use: bool = switch(help="Make it the profile that commands use.")
    force: bool = switch(help="Replace the profile of that name.")

    def settings(self, common: Common) -> dict[str, Any]:
        """Return the settings for the file. Raises UsageError.

        Only what was typed counts: variables of the environment may belong to another
        cluster.
        """
        if "output" in common.typed:
            raise UsageError(
                "this command writes no output",
                hint="for commands that use the profile: --default-output FORMAT",
            )
        if common.acl_file == "-":
            raise UsageError("a profile needs a file with credentials, not stdin")
        tls = common.tls
        settings: dict[str, Any] = {
            "namesrv": "namesrv" in common.typed and _listed(common.namesrv),
            "endpoints": "endpoints" in common.typed and _listed(self.endpoints),
            "plaintext": self.plaintext,
            "credentials_file": _absolute(common.acl_file),
            "credentials_command": self.credentials_command,
            "credentials": "environment" if self.credentials_environment else None,
            "tls": tls is not None,
            "tls_ca": tls and _absolute(tls.ca_file),
            "tls_cert": tls and _absolute(tls.cert_file),
            "tls_key": tls and _absolute(tls.key_file),
            "tls_server_name": tls and tls.server_hostname,
            "tls_insecure": tls and tls.insecure,
            "addresses": dict(common.address_map),
            "output": self.default_output,
            "time_zone": self.time_zone,
            "read_only": self.read_only,
            "protected": self.protected,
        }
        return {key: value for key, value in settings.items() if value}


def _listed(addresses: Sequence[str] | None) -> str | list[str] | None:
    if not addresses:
        return None
    return addresses[0] if len(addresses) == 1 else list(addresses)


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(os.path.expanduser(path))


@command_options(AddOptions, connects=False, takes=SERVER_NAMES)
def add(common: Common, options: AddOptions) -> None:
    """Name a cluster: add a profile with its servers.

    Example: rmq profile add prod -n 10.0.0.1:9876 --acl-file prod.acl --read-only

    The options for name servers, proxies, credentials, TLS and addresses are those of
    all commands, and become settings of the profile. Variables of the environment do
    not.
    """
    name, settings = options.name, options.settings(common)
    if not settings.keys() & {"namesrv", "endpoints"}:
        raise UsageError(
            "a profile needs servers", hint="give --namesrv HOST:PORT, or --endpoints"
        )
    with locked_config(os.environ) as file:
        if name in file.read().profiles and not options.force:
            raise RefusedError(
                f"profile {name} exists: nothing was changed",
                hint="change it with rmq profile edit, or replace it with --force",
            )
        profile = read_profile(name, settings, path=file.path)
        profile.check_files()
        if profile.credentials is not None and profile.credentials.kind == "file":
            profile.load_credentials()
        put_profile(file, name, settings)
        common.messages.info(f"{profile.title} ({profile.servers}) is in {file.path}")
    if options.use:
        _use(common, name)
    else:
        common.messages.info(f"to use it: rmq profile use {name}, or --profile {name}")


@command_options(connects=False)
def use(
    common: Common,
    name: str = argument(
        metavar="PROFILE",
        parser=parse_profile_name,
        help="Profile, or none for no profile.",
    ),
) -> None:
    """Choose the profile that commands use.

    Example: rmq profile use dev

    An option or a variable that names other servers takes precedence over it.
    """
    _use(common, name)


def _use(common: Common, name: str) -> None:
    with locked_config(os.environ) as file:
        if name == NO_PROFILE:
            use_profile(file, None)
            used = f"no profile, and {NAMESRV_DEFAULT} unless servers are named"
        else:
            profile = file.read().profile(name)
            use_profile(file, name)
            used = f"{profile.title} ({profile.servers})"
    common.messages.info(f"commands use {used}")
    named = os.environ.get(PROFILE_VARIABLE)
    if named and named != name:
        common.messages.warn(f"{PROFILE_VARIABLE}={named} takes precedence over it")
        return
    chosen = choose({}, frozenset(), os.environ, common.messages.warn)
    if chosen is not None and chosen.profile.name != name:
        common.messages.warn(f"{chosen.by} takes precedence over it")


@command_options(connects=False)
def remove(
    common: Common,
    name: str = argument(metavar="PROFILE", help="Profile to remove."),
) -> None:
    """Remove a profile.

    Example: rmq profile remove old

    The profile in use is not removed: choose another one first.
    """
    with locked_config(os.environ) as file:
        config = file.read()
        if name not in config.profiles:
            config.profile(name)  # raises that it does not exist
        if config.use == name:
            raise RefusedError(
                f"profile {name} is in use: nothing was changed",
                hint="choose another one with rmq profile use, or none",
            )
        confirm(common, f"This removes profile {safe(name)} from {safe(file.path)}.")
        remove_profile(file, name)
        common.messages.info(f"profile {name} is removed")
