"""The options that every command has, and kinds of options that commands share.

    @command_options(LagOptions, fields=QUEUE_COLUMNS)
    def lag(common: Common, options: LagOptions) -> int:

turns `lag` into a `Command` with its own options, the fields of `LagOptions`, and the
common options, whose values are one `Common`. In the place of a field's default stands
how the option is shown and parsed:

    count: int | None = option(min=1, help="...")

`rmqcli.cli.arguments.declared` reads such declarations and the types, which an ordinary
run does not need (`rmqcli.cli.arguments.parse`).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import Field, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar, overload

from rmqcli.cli.configuration.places import NO_PROFILE, has_config
from rmqcli.cli.ui.messages import Messages, color_is_on
from rmqcli.cli.ui.output import (
    TABLE_FORMATS,
    Column,
    Row,
    emit_json,
    json_line,
    write_rows,
    write_table,
    write_whole,
)
from rmqcli.config import NAMESRV_DEFAULT as NAMESRV_DEFAULT
from rmqcli.config import (
    NAMESRV_VARIABLE,
    ClientConfig,
    parse_address_mapping,
    parse_endpoints,
    parse_namesrv,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ConfigError,
    NotFoundError,
    TextError,
    TransportError,
    UsageError,
)
from rmqcli.units import parse_duration_ms, parse_size_bytes

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.cli.configuration.profile import Profile
    from rmqcli.errors import RmqError
    from rmqcli.transport.tls import TlsOptions


def show_times(messages: Messages, values: Mapping[str, object]) -> None:
    """Show which moment each time stands for, because its zone may be assumed.

    `values` are a command's parameters by name. A position, or what a command makes of
    one, has an `echo` if it is a time. The value of a repeated option is a list of
    positions, or of tuples that end with a position.
    """
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            position = one[-1] if isinstance(one, tuple) and one else one
            echo = getattr(position, "echo", "")
            if echo:
                messages.info(f"--{name.rstrip('_').replace('_', '-')}: {echo}")


def in_time_zone(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a command's parameters with times without a zone as those of a zone.

    The values are those of `show_times`. Raises TextError for a time that the clocks of
    the zone never show, and ConfigError for an unknown zone.
    """
    from rmqcli.cli.configuration.profile import find_zone

    zone = find_zone(name)

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(each) for each in value]
        if isinstance(value, tuple) and value and hasattr(value[-1], "in_zone"):
            return (*value[:-1], convert(value[-1]))
        return value.in_zone(zone) if hasattr(value, "in_zone") else value

    return {key: convert(value) for key, value in values.items()}


T = TypeVar("T")

#: The default of an option that is required, which may have any type.
MISSING: Any = dataclasses.MISSING
COLORS = ("auto", "always", "never")

#: Title of the section of `--help` that lists the common options.
COMMON_SECTION = "Common options"
#: Title of the section that lists the options for a proxy.
PROXY_SECTION = "With a proxy of RocketMQ 5"


@dataclass(slots=True, kw_only=True)
class Declaration:
    """An argument or option, as `rmqcli.cli.options.argument` or `option` declares it.

    An option without names is called like its parameter.
    """

    names: tuple[str, ...] = ()
    #: earlier names of an option, which work but are not shown
    aliases: tuple[str, ...] = ()
    is_argument: bool = False
    help: str = ""
    #: the title above it in the help of a command
    section: str = ""
    #: what stands for the value in the help; without it, by its type or its name
    metavar: str = ""
    parser: Callable[[str], object] | None = None
    choices: tuple[str, ...] = ()
    #: what completion offers for an argument, which takes other values, too
    words: tuple[str, ...] = ()
    #: bounds of an integer
    min: int | None = None
    max: int | None = None
    #: whether the value is how often the option is given
    count: bool = False
    envvar: str | None = None
    show_default: bool = True


@dataclass(slots=True, kw_only=True)
class Common:
    """The values of the options that every command has."""

    namesrv: tuple[str, ...] = (NAMESRV_DEFAULT,)
    output: str = "table"
    quiet: bool = False
    verbose: int = 0
    timeout_ms: int = 5000
    assume_yes: bool = False
    no_input: bool = False
    color: str = "auto"
    tls: TlsOptions | None = None
    #: pairs of an advertised and a reachable address; see ClientConfig
    address_map: tuple[tuple[str, str], ...] = ()
    acl_file: str | None = None
    #: the profile whose cluster the command uses; None without one
    profile: Profile | None = None
    #: the protected profile whose cluster may be changed; None to ask
    confirm: str | None = None
    #: parameters of the options that were typed (not those from the environment)
    typed: frozenset[str] = frozenset()
    #: the folder that `namesrv` serves (`--store`); None for a cluster
    store: str | None = None
    #: the addresses of a proxy; empty if name servers are used
    endpoints: tuple[str, ...] = ()
    plaintext: bool = False
    messages: Messages = field(default_factory=Messages, compare=False)

    @property
    def use_color(self) -> bool:
        """Whether to colour what is written to stdout."""
        return color_is_on(self.color, sys.stdout)

    @property
    def namesrv_text(self) -> str:
        """The name servers as the user types them, for hints."""
        return ";".join(self.namesrv)

    def flags_to_repeat(self) -> list[str]:
        """The flags with which another command reaches the same cluster or folder.

        They hold no secrets: credentials of the environment have to be there again.
        """
        words = self.profile_words or ["-n", self.namesrv_text]
        if self.store is not None:
            words = ["--store", self.store]
        known: tuple[tuple[str, str], ...] = ()
        if self.profile is not None and self.profile_words:
            known = self.profile.address_map
        for advertised, reachable in self.address_map:
            if (advertised, reachable) not in known:
                words += ["--address-map", f"{advertised}={reachable}"]
        if self.acl_file is not None:
            words += ["--acl-file", self.acl_file]
        typed_tls = any(name.startswith("tls") for name in self.typed)
        if self.tls is not None and (typed_tls or not self.profile_words):
            named = {
                "--tls-ca": self.tls.ca_file,
                "--tls-cert": self.tls.cert_file,
                "--tls-key": self.tls.key_file,
                "--tls-server-name": self.tls.server_hostname,
            }
            words.append("--tls-insecure" if self.tls.insecure else "--tls")
            for name, value in named.items():
                words += [name, value] if value is not None else []
        return words

    @property
    def profile_words(self) -> list[str]:
        """The option that names the profile, for hints; empty if no option does."""
        if self.profile is None or self.profile.is_project:
            return []
        return ["--profile", self.profile.name]

    def client_config(self) -> ClientConfig:
        """Return how to reach the cluster, with the credentials.

        Call it only once, because `--acl-file -` reads all of stdin. Raises ConfigError
        if the credentials cannot be read. Raises UsageError if the profile names a
        proxy, or if only ROCKETMQ_ENDPOINTS in the environment says where the cluster
        is, and the command cannot use a proxy: the default name server may belong to
        another cluster.
        """
        if self.store is not None:  # served by this process, without access control
            return ClientConfig(namesrv=self.namesrv, timeout_ms=self.timeout_ms)
        if self.profile is not None and self.profile.endpoints and not self.endpoints:
            raise UsageError(
                f"this command needs a name server, and {self.profile.title} names a"
                " proxy",
                hint="give the --profile of a cluster's name servers, or --namesrv",
            )
        if (
            not self.endpoints
            and self.profile is None
            and "namesrv" not in self.typed
            and not os.environ.get("NAMESRV_ADDR")
            and os.environ.get("ROCKETMQ_ENDPOINTS")
        ):
            raise UsageError(
                "this command needs a name server, and ROCKETMQ_ENDPOINTS names a"
                " proxy",
                hint="give --namesrv HOST:PORT, or set NAMESRV_ADDR",
            )
        from rmqcli.credentials import load_credentials

        if self.profile is not None and self.acl_file is None:
            credentials = self.profile.load_credentials()
        else:
            credentials = load_credentials(
                self.acl_file, environ=os.environ, stdin=sys.stdin
            )
        return ClientConfig(
            namesrv=self.namesrv,
            timeout_ms=self.timeout_ms,
            credentials=credentials,
            tls=self.tls,
            endpoints=self.endpoints,
            plaintext=self.plaintext,
            address_map=self.address_map,
        )

    def with_endpoints(
        self, endpoints: tuple[str, ...] | None, *, plaintext: bool
    ) -> Common:
        """Return a copy that uses the proxy at `endpoints`, if there is one.

        A typed `--namesrv` takes precedence over ROCKETMQ_ENDPOINTS in the environment.
        Raises UsageError if both `--namesrv` and `--endpoints` were typed, and for
        other options that cannot be used together.
        """
        if endpoints and "namesrv" in self.typed:
            if "endpoints" in self.typed:
                raise UsageError("--namesrv and --endpoints cannot be used together")
            endpoints = ()
        if plaintext and not endpoints:
            raise UsageError(
                "--plaintext needs --endpoints",
                hint="connections to name servers and brokers use TLS only with --tls",
            )
        if plaintext and self.tls is not None:
            raise UsageError("--plaintext and --tls cannot be used together")
        return replace(self, endpoints=endpoints or (), plaintext=plaintext)

    def with_endpoints_or_namesrv(
        self, endpoints: tuple[str, ...] | None, *, plaintext: bool
    ) -> Common:
        """`with_endpoints` for a command that learns more from name servers.

        The command uses a proxy only if one of the proxy's options was typed, or if the
        environment has no NAMESRV_ADDR.
        """
        is_typed = "endpoints" in self.typed or plaintext
        if not is_typed and self.profile is None and os.environ.get("NAMESRV_ADDR"):
            endpoints = None
        return self.with_endpoints(endpoints, plaintext=plaintext)

    def open_client(self) -> Client:
        """Open a client for the cluster. The caller must close it: use `with`."""
        from rmqcli.api.client import Client

        return Client(self.client_config())

    def write_rows(self, rows: Iterable[Row], columns: Sequence[Column]) -> None:
        """Write rows to stdout in the format of `--output`."""
        write_rows(rows, columns=columns, fmt=self.output, color=self.use_color)

    def write_table(
        self,
        rows: Sequence[Row],
        columns: Sequence[Column],
        *,
        stream: TextIO | None = None,
        left_out: str = "",
    ) -> None:
        """Write a table to `stream` (None: stdout); see `output.write_table`."""
        color = color_is_on(self.color, stream or sys.stdout)
        write_table(
            rows, columns=columns, color=color, stream=stream, left_out=left_out
        )

    def write_each(
        self,
        found: Iterable[T],
        *,
        text: Callable[[T], None],
        json: Callable[[T], dict[str, Any]],
    ) -> None:
        """Write each of what was found as `--output` says: as text, or as JSON.

        `text` writes one where others write a table; `json` returns its object.
        """
        if self.output == "table":
            for each in found:
                text(each)
        elif self.output == "json":
            emit_json([json(each) for each in found])
        else:
            write_whole("".join(json_line(json(each)) + "\n" for each in found))

    def write_result(self, write: Callable[[], None]) -> None:
        """Write the result of a change to stdout with `write`, or else to stderr.

        Without a word that the change was made, users make it again. A command that
        would succeed then fails because of its output when it ends.
        """
        try:
            write()
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            from rmqcli.cli.ui.errors import describe, discard_output

            discard_output()
            self.messages.output_error = error
            reason = describe(error).message
            self.messages.warn(f"{reason}; the result of the change is this:")
            if sys.stderr is not None:
                with redirect_stdout(sys.stderr), suppress(OSError, ValueError):
                    write()

    def explain_missing(self, error: NotFoundError) -> NotFoundError:
        """Return the error with the name that was probably meant, if there is one."""
        if self.acl_file == "-":  # stdin has been read
            return error
        from rmqcli.admin.mistakes import explain_missing

        with self.open_client() as client:
            return explain_missing(client, error)

    def explain_endpoints(
        self, error: TransportError, endpoints: Sequence[str]
    ) -> RmqError:
        """Return the error, or what else than a proxy is at one of the endpoints."""
        from rmqcli.admin.mistakes import not_a_proxy

        if error.address.split(";")[0] not in endpoints:
            return error
        return not_a_proxy(endpoints[0], ClientConfig(tls=self.tls)) or error


def _check_named(own: Mapping[str, Any]) -> None:
    """Raise UsageError for a name without a character, as of an unset variable."""
    for parameter in ("topic", "topics", "group", "groups", "source", "target"):
        value = own.get(parameter)
        names = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(name, str) and not name.strip() for name in names):
            raise UsageError(f"the {parameter.removesuffix('s')}'s name is empty")


def require_extra(command: str, extra: str, module: str, name: str) -> None:
    """Raise ConfigError unless a module is installed that a command needs.

    `name` is what the error calls it. Nothing is loaded.
    """
    from importlib.util import find_spec  # few commands need it

    if find_spec(module) is None:
        raise ConfigError(
            f"{command} needs {name}, which the extra {extra} installs",
            hint=f"run: pip install 'rmqcli[{extra}]'",
        )


def not_a_choice(text: str, choices: Sequence[str]) -> UsageError:
    """The error for a value that is not one of `choices`."""
    import difflib  # only when something was mistyped

    near = difflib.get_close_matches(text, choices, n=1)
    hint = f"did you mean {near[0]}?" if near else ""
    return UsageError(f"{text!r} is not one of {', '.join(choices)}", hint=hint)


def refuse_together(
    given: Mapping[str, bool], pairs: Iterable[tuple[str, str]]
) -> None:
    """Raise UsageError for the first of `pairs` of options that were both given."""
    for one, other in pairs:
        if given[one] and given[other]:
            raise UsageError(f"{one} and {other} cannot be used together")


def given_options(options: Any) -> dict[str, bool]:
    """Return whether each field of a command's options was given, by `--name`.

    An option with the value of its default counts as not given.
    """
    return {
        f"--{each.name.strip('_').replace('_', '-')}": getattr(options, each.name)
        not in (each.default, [])
        for each in fields(options)
    }


@overload
def option(*names: str, default: T, **settings: Any) -> T: ...


@overload
def option(*names: str, **settings: Any) -> None: ...


def option(*names: str, default: object = None, **settings: Any) -> Any:
    """Declare an option, in the place of the default of a field or a parameter.

    The settings are the fields of `Declaration`; `help` may also be a function, which
    is called when the text is needed. An option whose `default` is MISSING is required.
    The names of a switch may have the form `--follow/--no-follow`.
    """
    return field(default=default, metadata={"names": names, **settings})


def switch(*names: str, **settings: Any) -> Any:
    """An option without a value, a bool that is False without it."""
    return option(*names, default=False, **settings)


def argument(*, default: object = MISSING, **settings: Any) -> Any:
    """Declare an argument, which is required if it has no `default`; see `option`."""
    return option(default=default, is_argument=True, **settings)


def duration_option(*names: str, **settings: Any) -> Any:
    """An option that takes a duration and gives milliseconds, an int."""
    return option(*names, parser=parse_duration_ms, metavar="DURATION", **settings)


def size_option(*names: str, **settings: Any) -> Any:
    """An option that takes a size and gives bytes, an int."""
    return option(*names, parser=parse_size_bytes, metavar="SIZE", **settings)


def choice_option(*names: str, choices: Sequence[str], **settings: Any) -> Any:
    """An option that takes one of `choices`, a str."""
    return option(*names, choices=tuple(choices), **settings)


def position_option(*names: str, **settings: Any) -> Any:
    """An option that takes a position and gives a `rmqcli.position.Position`."""
    return option(*names, parser=read_position, metavar="POSITION", **settings)


def read_position(text: str) -> Any:
    """Parse a position; a time without a zone is in this machine's time zone."""
    from rmqcli.position import parse_position  # few commands need it

    return parse_position(text)


def parse_timeout_ms(text: str) -> int:
    """Read the duration of `--timeout`. Raises TextError for 0."""
    timeout_ms = parse_duration_ms(text)
    if not timeout_ms:
        raise TextError(text, "must be greater than 0")
    return timeout_ms


def read_int(text: str, least: int | None, most: int | None) -> int:
    """Read an integer between two bounds, which may be None. Raises TextError."""
    digits = text.removeprefix("-")
    # int() would also take `1_0`, blanks, and digits of other scripts.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 400):
        raise TextError(text, "not a whole number")
    number = int(text)
    if (least is None or number >= least) and (most is None or number <= most):
        return number
    if most is None:
        what = f"must be at least {least}"
    elif least is None:
        what = f"must be at most {most}"
    else:
        what = f"must be from {least} to {most}"
    raise TextError(text, what)


def parse_profile_name(text: str) -> str:
    """Read the name of a profile, or `none`. Raises UsageError."""
    from rmqcli.cli.configuration.profile import check_name

    return text if text == NO_PROFILE else check_name(text)


def parse_queue(text: str) -> Any:
    """Read a `QueueSelector`. Raises UsageError."""
    from rmqcli.queue_selector import parse_queue_selector  # few commands need it

    return parse_queue_selector(text)


#: `--queue`, repeatable: a list of `QueueSelector`.
queue_option = partial(
    option,
    parser=parse_queue,
    metavar="[BROKER:]ID",
    help="Only this queue; repeatable.",
)
#: `--cluster` and `--broker`, for changes that go to some brokers only.
cluster_option = partial(option, help="Only on the master brokers of this cluster.")
brokers_option = partial(option, help="Only on this broker; repeatable.")


#: `--endpoints` and `--plaintext`, for `Common.with_endpoints`.
endpoints_option = partial(
    option,
    section=PROXY_SECTION,
    envvar="ROCKETMQ_ENDPOINTS",
    parser=parse_endpoints,
    metavar="HOST:PORT[,...]",
    help="Use this proxy, over gRPC and TLS, instead of name servers.",
)
plaintext_option = partial(
    switch, section=PROXY_SECTION, help="Do not use TLS with the proxy."
)
#: `--store`, for `rmqcli.cli.offline.read_from`.
store_option = partial(
    option,
    metavar="DIR",
    help="Read a broker's store folder, without changing it, instead of a cluster.",
)


_common = partial(option, section=COMMON_SECTION)


def make_common(
    *,
    typed: frozenset[str] = frozenset(),
    namesrv: Any = _common(
        "--namesrv",
        "-n",
        default=NAMESRV_DEFAULT,
        envvar="NAMESRV_ADDR",
        parser=parse_namesrv,
        metavar="HOST:PORT[,...]",
        help="Name servers.",
    ),
    profile: Any = _common(
        envvar="RMQ_PROFILE",
        parser=parse_profile_name,
        help="Use the cluster of this profile; none: of no profile.",
    ),
    output: str = _common("--output", "-o", default="table", help="Output format."),
    quiet: bool = _common(
        "--quiet", "-q", default=False, help="Only warnings and errors."
    ),
    verbose: int = _common(
        "--verbose",
        "-v",
        default=0,
        count=True,
        show_default=False,
        help="More messages; -vv adds every request and tracebacks.",
    ),
    timeout: int = _common(
        default=5000,
        parser=parse_timeout_ms,
        metavar="DURATION",
        show_default=False,
        help="Time limit for a broker's answer.  [default: 5s]",
    ),
    yes: bool = _common(default=False, help="Skip confirmation."),
    no_input: bool = _common(default=False, help="Never prompt; fail instead."),
    color: str = _common(
        default="auto",
        choices=COLORS,
        help="Use colours; auto honours NO_COLOR and TERM=dumb.",
    ),
    confirm: str | None = _common(
        metavar="PROFILE",
        help="Confirm a change of the cluster of this protected profile.",
    ),
    address_map: list[Any] | None = _common(
        parser=parse_address_mapping,
        metavar="HOST:PORT=HOST:PORT",
        help="Reach the broker that advertises the first address at the second;"
        " repeatable. Without ports: all brokers of a host.",
    ),
    acl_file: str | None = _common(
        metavar="FILE|-",
        help="File with access key and secret key, readable only by you; - is stdin.",
    ),
    tls: bool = _common(default=False, help="Use TLS and verify certificates."),
    tls_ca: str | None = _common(
        metavar="FILE", help="Trust only the CAs in this file."
    ),
    tls_server_name: str | None = _common(
        metavar="NAME",
        help="Host name in the certificates, for brokers that advertise an IP address.",
    ),
    tls_cert: str | None = _common(
        metavar="FILE", help="Client certificate, for mutual TLS."
    ),
    tls_key: str | None = _common(
        metavar="FILE", help="Key of the client certificate."
    ),
    tls_insecure: bool = _common(
        default=False, help="Accept any certificate; this gives no protection."
    ),
) -> Common:
    """Combine the values of the common options into a `Common`.

    Any `--tls-...` option implies `--tls`. `typed` names the options that were typed,
    and `profile` is the Profile that `rmqcli.cli.configuration.choose` found.
    """
    tls_options = None
    if tls_key and not tls_cert:
        raise UsageError("--tls-key needs --tls-cert")
    if tls_insecure and tls_ca:
        raise UsageError("--tls-insecure and --tls-ca cannot be used together")
    if tls or tls_insecure or tls_ca or tls_server_name or tls_cert:
        from rmqcli.transport.tls import TlsOptions

        tls_options = TlsOptions(
            ca_file=tls_ca,
            insecure=tls_insecure,
            cert_file=tls_cert,
            key_file=tls_key,
            server_hostname=tls_server_name,
        )
    return Common(
        namesrv=parse_namesrv(namesrv) if isinstance(namesrv, str) else namesrv,
        output=output,
        quiet=quiet,
        verbose=verbose,
        timeout_ms=timeout,
        assume_yes=yes,
        no_input=no_input,
        color=color,
        tls=tls_options,
        address_map=tuple(address_map or ()),
        acl_file=acl_file,
        profile=profile,
        confirm=confirm,
        typed=typed,
        messages=Messages(quiet=quiet, color=color),
    )


def _take_declarations(function: Any) -> dict[str, Any]:
    """Return the declarations by parameter, and give the function their defaults."""
    names = [name for name in function.__annotations__ if name != "return"]
    given, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
    found = dict(zip(names[-len(given) :], given, strict=False)) | by_name
    function.__defaults__ = tuple(
        each.default for each in given if each.default is not MISSING
    )
    function.__kwdefaults__ = {
        name: getattr(each, "default", each) for name, each in by_name.items()
    }
    return {name: each for name, each in found.items() if isinstance(each, Field)}


#: The declarations of the common options, by parameter.
COMMON_DECLARATIONS = _take_declarations(make_common)
#: The parameters of the common options.
COMMON_NAMES = frozenset(COMMON_DECLARATIONS)
#: Those that say what a cluster is, and how it is reached.
SERVER_NAMES = frozenset(
    name
    for name in COMMON_NAMES
    if name in ("namesrv", "address_map", "acl_file") or name.startswith("tls")
)
#: Those that have no effect without a cluster.
CLUSTER_NAMES = SERVER_NAMES | {"profile", "timeout", "confirm"}


class Command(NamedTuple):
    """A command: its function, and how it receives the command's arguments."""

    #: takes `common` if `has_common`, then `options` or its own parameters
    function: Callable[..., Any]
    #: the declarations of these parameters
    declared: Mapping[str, Any]
    #: the frozen dataclass of its own options; None if they are parameters
    options_type: type[Any] | None
    formats: tuple[str, ...]
    fields: tuple[Column, ...]
    has_common: bool
    #: returns the JSON Schema of its records, for `-o schema`
    schema: Callable[[], str] | None = None
    #: whether it uses a cluster, and so a profile
    connects: bool = True
    #: whether it changes the cluster, or which of its options do
    changes: bool | Callable[[Any], bool] = True
    #: the parameters of common options about a cluster that it takes
    takes: frozenset[str] = CLUSTER_NAMES
    #: whether it may ask a question that `--yes` answers
    asks: bool = False
    #: whether it puts load on a cluster, which no protected one may have
    is_load: bool = False

    @property
    def own_names(self) -> list[str]:
        """The parameters of its own options and arguments, in order."""
        if self.options_type is not None:
            return list(self.options_type.__dataclass_fields__)
        names = self.function.__annotations__
        return [name for name in names if name not in ("common", "return")]

    def _with_profile(
        self, given: dict[str, Any], own: dict[str, Any], typed: frozenset[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the common and the own options with those of the profile, if any."""
        name = given.get("profile")
        for each in sorted(typed & CLUSTER_NAMES - self.takes):
            raise UsageError(
                f"--{each.replace('_', '-')} has no effect: this command connects to no"
                " cluster"
            )
        if (
            not self.connects
            or own.get("store") is not None
            or (name is None and not has_config(os.environ))
        ):
            return {**given, "profile": None}, own
        from rmqcli.cli.configuration.choose import with_profile

        messages = Messages(
            quiet=given.get("quiet", False), color=given.get("color", "auto")
        )
        return with_profile(
            given,
            own,
            typed,
            formats=self.formats,
            may_use_proxy="endpoints" in self.own_names,
            warn=messages.warn,
            changes=lambda: self._changes_with(own),
        )

    def _changes_with(self, own: Mapping[str, Any]) -> bool:
        """Whether the command changes the cluster, with these of its options."""
        if isinstance(self.changes, bool):
            return self.changes
        if self.options_type is None:
            raise TypeError("only options can say whether a command changes anything")
        return self.changes(self.options_type(**own))

    def _is_guarded(self, named: str | None, own: Mapping[str, Any]) -> bool:
        """Whether a profile of its servers may forbid the command, which has none."""
        return (
            self.connects
            and own.get("store") is None
            and named != NO_PROFILE  # how to do what a profile forbids
            and has_config(os.environ)
            and self._changes_with(own)
        )

    def run(self, values: Mapping[str, Any], typed: Iterable[str]) -> Any:
        """Call the function with `values`, the options and arguments by parameter.

        Parameters that are missing in `values` have their defaults; `typed` are the
        parameters that were typed. Raises UsageError for common options that cannot be
        used together, and ConfigError for a profile that cannot be used.
        """
        own = {name: values[name] for name in self.own_names if name in values}
        if not self.has_common:
            return self.function(**own)
        given = {name: value for name, value in values.items() if name not in own}
        given.setdefault("output", next(iter(self.formats), "table"))
        typed = frozenset(typed)
        named = given.get("profile")
        given, own = self._with_profile(given, own, typed)
        common = make_common(typed=typed, **given)
        from rmqcli.cli.ui import log

        log.configure(verbose=common.verbose, quiet=common.quiet)
        if common.profile is not None and common.profile.project is not None:
            from rmqcli.cli.configuration.project import check_trust

            check_trust(
                common.profile,
                acl_file=common.acl_file,
                certificate=None if common.tls is None else common.tls.cert_file,
                no_input=common.no_input,
                warn=common.messages.warn,
            )
            common.messages.info(
                f"{common.profile.project.path} chooses {common.profile.title}"
                f" ({common.profile.servers})"
            )
        guard = common.profile
        if guard is None and self._is_guarded(named, own):
            from rmqcli.cli.configuration.guard import profile_of_servers

            uses_proxy = bool(own.get("endpoints")) and "namesrv" not in typed
            guard = profile_of_servers(
                () if uses_proxy else common.namesrv,
                tuple(own["endpoints"]) if uses_proxy else (),
                os.environ,
            )
        if guard is not None or common.confirm is not None:
            from rmqcli.cli.configuration.guard import check_profile

            check_profile(
                guard,
                changes=self._changes_with(own),
                confirmed=common.confirm,
                no_input=common.no_input,
                asks=self.asks and not common.assume_yes,
                is_load=self.is_load,
            )
        if common.profile is not None and common.profile.time_zone is not None:
            own = in_time_zone(own, common.profile.time_zone)
        show_times(common.messages, own)
        _check_named(own)
        try:
            if self.options_type is not None:
                result = self.function(common, self.options_type(**own))
            else:
                result = self.function(common, **own)
        except NotFoundError as error:
            if error.missing is None or own.get("store") is not None:
                raise
            if error.address in (own.get("endpoints") or ()):
                raise  # a proxy lists no names
            raise common.explain_missing(error) from error
        except TransportError as error:
            if common.profile is not None and "namesrv" in error.hint:
                error.hint = f"check the servers of {common.profile.title}"
            elif (
                common.profile is None
                and error.address == NAMESRV_DEFAULT
                and not typed & {"namesrv", "endpoints"}
                and not os.environ.get(NAMESRV_VARIABLE)
            ):
                error.hint = (
                    f"{NAMESRV_VARIABLE} is not set, and {NAMESRV_DEFAULT} is the"
                    " default; set it, or give --namesrv"
                )
            raise common.explain_endpoints(error, own.get("endpoints") or ()) from error
        if not result and common.messages.output_error is not None:
            raise common.messages.output_error
        return result


def command_options(
    options_type: type[Any] | None = None,
    *,
    formats: Sequence[str] = TABLE_FORMATS,
    fields: Sequence[Column] = (),
    schema: Callable[[], str] | None = None,
    has_common: bool = True,
    connects: bool = True,
    changes: bool | Callable[[Any], bool] = True,
    takes: Iterable[str] = (),
    asks: bool = False,
    is_load: bool = False,
) -> Callable[[Callable[..., Any]], Command]:
    """Turn a function into a `Command`.

    The command's own options are the fields of the dataclass `options_type`, and the
    function receives them as `options`; without `options_type` they are the function's
    keyword parameters. The first parameter of the function is `common`, with the common
    options, unless `has_common` is False. `formats` are the values of `--output`, the
    first one being the default, and without any there is no such option; `fields` are
    the fields that `-o help` lists, and `schema` returns the JSON Schema that `-o
    schema` prints. `connects` is False for a
    command with common options that uses no cluster, and `changes` for one that never
    changes the cluster; it may be a function of the options. Profiles that are
    read-only refuse commands that change anything, so a new command is refused until it
    says that it only reads. `takes` are the parameters of common options that a command
    without a cluster uses all the same; it refuses the others that need a cluster.
    `asks` is True for a command that changes a cluster and may ask before
    (`rmqcli.cli.confirm`), and `is_load` for one that a protected profile refuses
    whatever is typed, because all it does is put load on the cluster.
    """

    def make(function: Callable[..., Any]) -> Command:
        first = next(iter(function.__annotations__), "")
        if has_common and first != "common":
            raise TypeError(
                f"{function.__qualname__}: the first parameter is not `common`"
            )
        return Command(
            function,
            _take_declarations(function),
            options_type,
            tuple(formats),
            tuple(fields),
            has_common,
            schema,
            connects,
            changes,
            CLUSTER_NAMES if connects else frozenset(takes),
            asks,
            is_load,
        )

    return make
