"""What every command takes, and option types that several commands share.

    @command_options(formats=FORMATS, fields=COLUMNS)
    def lag(common: Common, groups: Annotated[list[str], ...]) -> None:

adds the common options to `lag` and hands their values over as one `Common`. A command
that has a parameter of its own with the name of a common one (tail's `timeout`) keeps
its own. Positions that were typed are echoed as the moments that they stand for.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    get_type_hints,
    overload,
)

import typer

from rmqcli.cli.ui.messages import Messages, color_is_on
from rmqcli.cli.ui.output import TABLE_FORMATS, Column, write_field_help
from rmqcli.config import NAMESRV_DEFAULT as NAMESRV_DEFAULT
from rmqcli.config import ClientConfig
from rmqcli.errors import TextError, UsageError
from rmqcli.queue_selector import QueueSelector, parse_queue_selector
from rmqcli.units import parse_duration_ms, parse_size_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.client import Client
    from rmqcli.transport.tls import TlsOptions


def show_times(messages: Messages, values: Mapping[str, object]) -> None:
    """Say which moment each time is, with its zone: the zone may have been assumed.

    `values` are a command's parameters by name. Times have an `echo`: positions, and
    what commands make of them; a repeated option has a list, or a list of tuples with
    the position at the end.
    """
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            position = one[-1] if isinstance(one, tuple) and one else one
            echo = getattr(position, "echo", "")
            if echo:
                messages.info(f"--{name.rstrip('_').replace('_', '-')}: {echo}")


NAMESRV_PORT_DEFAULT = 9876
COLORS = ("auto", "always", "never")

#: Title of the section of `--help` that holds the options of this module.
COMMON_SECTION = "Common options"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    acl_file: str | None = None
    #: the folder that `namesrv` serves; None: a cluster
    store: str | None = None
    messages: Messages = field(default_factory=Messages, compare=False)

    @property
    def use_color(self) -> bool:
        """Whether what goes to stdout may be coloured."""
        return color_is_on(self.color, sys.stdout)

    @property
    def namesrv_text(self) -> str:
        """The name servers as they are typed, for hints."""
        return ";".join(self.namesrv)

    def client_config(self) -> ClientConfig:
        """How to reach the cluster. Reads the credentials, so it may raise ConfigError.

        Call it once: with `--acl-file -` it uses up stdin.
        """
        if self.store is not None:  # served by this process, without access control
            return ClientConfig(namesrv=self.namesrv, timeout_ms=self.timeout_ms)
        from rmqcli.credentials import load_credentials

        credentials = load_credentials(
            self.acl_file, environ=os.environ, stdin=sys.stdin
        )
        return ClientConfig(
            namesrv=self.namesrv,
            timeout_ms=self.timeout_ms,
            credentials=credentials,
            tls=self.tls,
        )

    def open_client(self) -> Client:
        """A client for the cluster, to be closed by the caller: use `with`."""
        from rmqcli.api.client import Client

        return Client(self.client_config())


def option_parser(parse: Callable[[str], T]) -> Callable[[Any], Any]:
    """Make a parser of ours usable as `typer.Option(parser=...)`.

    Its errors then name the option. Typer also passes defaults through, which are
    values already.
    """

    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except UsageError as error:
            raise typer.BadParameter(error.message) from error

    convert.__name__ = parse.__name__
    return convert


def choice_parser(choices: Sequence[str]) -> Callable[[Any], Any]:
    """A parser that takes one of `choices` and suggests the nearest to anything else.

    Give the option `metavar="|".join(choices)`: help and completion read it.
    """

    def choice(text: str) -> str:
        if text in choices:
            return text
        raise not_a_choice(text, choices)

    return option_parser(choice)


def not_a_choice(text: str, choices: Sequence[str]) -> UsageError:
    """The error for a value that is not one of `choices`."""
    import difflib  # only when something was mistyped

    near = difflib.get_close_matches(text, choices, n=1)
    hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(choices)}"
    return UsageError(f"{text!r} is not one of {', '.join(choices)}", hint=hint)


def parse_namesrv(text: str) -> tuple[str, ...]:
    """Read `HOST:PORT[;HOST:PORT]`; IPv6 hosts in brackets, port 9876 when left out.

    Raises TextError.
    """
    addresses = []
    start = 0
    for part in text.split(";"):
        stripped = part.strip()
        if stripped:
            at = start + part.index(stripped)
            addresses.append(_parse_address(text, stripped, at))
        start += len(part) + 1
    if not addresses:
        what = "no name server in it"
        hint = "write HOST:PORT, or several with ';' between them"
        raise TextError(text, what, start=0, end=len(text), hint=hint)
    return tuple(dict.fromkeys(addresses))


def _parse_address(text: str, address: str, at: int) -> str:
    hint = "write HOST:PORT, or several with ';' between them"
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(NAMESRV_PORT_DEFAULT)
    port_at = at + len(address) - len(port) if colon else at
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        end = at + len(address)
        raise TextError(
            text, "the port is not a number", start=port_at, end=end, hint=hint
        )
    if not 0 < int(port) < 65_536:
        what = f"port {int(port)} is not in 1..65535"
        raise TextError(text, what, start=port_at, end=at + len(address), hint=hint)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or any(c.isspace() or not c.isprintable() or c in "/@," for c in bare):
        end = at + max(1, len(host))
        raise TextError(text, "not a host name", start=at, end=end, hint=hint)
    if ":" in bare and bare is host:
        what = "an IPv6 address needs brackets"
        end = at + len(host)
        raise TextError(text, what, start=at, end=end, hint=f"write [{host}]:{port}")
    return f"{host}:{int(port)}"


def duration_option(*names: str, **settings: Any) -> Any:
    """An option that takes a duration and gives milliseconds, an int."""
    return typer.Option(
        *names,
        parser=option_parser(parse_duration_ms),
        metavar="DURATION",
        **settings,
    )


def size_option(*names: str, **settings: Any) -> Any:
    """An option that takes a size and gives bytes, an int."""
    return typer.Option(
        *names, parser=option_parser(parse_size_bytes), metavar="SIZE", **settings
    )


def choice_option(*names: str, choices: Sequence[str], **settings: Any) -> Any:
    """An option that takes one of `choices`, a str."""
    return typer.Option(
        *names, parser=choice_parser(choices), metavar="|".join(choices), **settings
    )


def position_option(*names: str, **settings: Any) -> Any:
    """An option that takes a position and gives a `rmqcli.position.Position`."""
    return typer.Option(
        *names, parser=option_parser(_parse_position), metavar="POSITION", **settings
    )


def _parse_timeout_ms(text: str) -> int:
    timeout_ms = parse_duration_ms(text)
    if not timeout_ms:
        raise TextError(text, "must be over 0", start=0, end=len(text))
    return timeout_ms


def _parse_position(text: str) -> Any:
    from rmqcli.position import parse_position  # few commands need it

    return parse_position(text, tz=None)


#: `--queue`, repeatable.
Queues = Annotated[
    list[QueueSelector] | None,
    typer.Option(
        "--queue",
        parser=option_parser(parse_queue_selector),
        metavar="[BROKER:]ID",
        help="Only this queue; repeatable.",
    ),
]


#: `--cluster` and `--broker`, for changes that go to some brokers only.
OnCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="CLUSTER",
        help="Only on the master brokers of this cluster.",
    ),
]
OnBrokers = Annotated[
    list[str] | None,
    typer.Option("--broker", metavar="BROKER", help="Only on this broker; repeatable."),
]


def _store_choice(ctx: typer.Context, text: str | None) -> Any:
    """What `--store` says, and what it cannot go with as soon as all is parsed."""
    if text is None:
        return None
    return StoreChoice(text, lambda name: str(ctx.get_parameter_source(name)))


class StoreChoice(NamedTuple):
    """The value of `--store`. `source_of` tells where an option's value is from."""

    folder: str
    source_of: Callable[[str], str]

    def given(self, names: Iterable[str]) -> list[str]:
        """Those of the options that were typed, by the names of their parameters."""
        return [name for name in names if self.source_of(name).endswith("COMMANDLINE")]


#: `--store`, for `rmqcli.cli.offline.read_from`.
Store = Annotated[
    Any,
    typer.Option(
        "--store",
        parser=str,
        callback=_store_choice,
        metavar="DIR",
        help="Read a broker's store folder, without changing it, instead of a cluster.",
    ),
]


def _common(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=COMMON_SECTION, **settings)


def _build_common(
    *,
    namesrv: Annotated[
        Any,
        _common(
            "--namesrv",
            "-n",
            envvar="NAMESRV_ADDR",
            show_envvar=True,
            parser=option_parser(parse_namesrv),
            metavar="HOST:PORT[;...]",
            help="Name servers.",
        ),
    ] = NAMESRV_DEFAULT,
    output: Annotated[str, _common("--output", "-o")] = "table",
    quiet: Annotated[
        bool, _common("--quiet", "-q", help="Only warnings and errors.")
    ] = False,
    verbose: Annotated[
        int,
        _common(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="More messages; -vv adds every request and tracebacks.",
        ),
    ] = 0,
    timeout: Annotated[
        int,
        _common(
            "--timeout",
            parser=option_parser(_parse_timeout_ms),
            metavar="DURATION",
            show_default=False,
            help="Time limit for answers from the cluster.  [default: 5s]",
        ),
    ] = 5000,
    yes: Annotated[bool, _common("--yes", help="Skip confirmation.")] = False,
    no_input: Annotated[
        bool, _common("--no-input", help="Never prompt; fail instead.")
    ] = False,
    color: Annotated[
        str,
        _common(
            "--color",
            parser=choice_parser(COLORS),
            metavar="|".join(COLORS),
            help="Use colours; auto honours NO_COLOR and TERM=dumb.",
        ),
    ] = "auto",
    acl_file: Annotated[
        str | None,
        _common(
            "--acl-file",
            metavar="FILE|-",
            help=(
                "File with access key and secret key, readable only by you; - is stdin."
            ),
        ),
    ] = None,
    tls: Annotated[
        bool, _common("--tls", help="Use TLS and verify certificates.")
    ] = False,
    tls_ca: Annotated[
        str | None,
        _common("--tls-ca", metavar="FILE", help="Trust only the CAs in this file."),
    ] = None,
    tls_server_name: Annotated[
        str | None,
        _common(
            "--tls-server-name",
            metavar="NAME",
            help=(
                "Host name in the certificates, for brokers that advertise an IP "
                "address."
            ),
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        _common(
            "--tls-cert", metavar="FILE", help="Client certificate, for mutual TLS."
        ),
    ] = None,
    tls_key: Annotated[
        str | None,
        _common("--tls-key", metavar="FILE", help="Key of the client certificate."),
    ] = None,
    tls_insecure: Annotated[
        bool,
        _common("--tls-insecure", help="Accept any certificate. Gives no protection."),
    ] = False,
) -> Common:
    """Turn the values of the common options into one value.

    Any `--tls-...` option implies `--tls`.
    """
    tls_options = None
    if tls_key and not tls_cert:
        raise UsageError("--tls-key is given without --tls-cert")
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
        namesrv=namesrv,
        output=output,
        quiet=quiet,
        verbose=verbose,
        timeout_ms=timeout,
        assume_yes=yes,
        no_input=no_input,
        color=color,
        tls=tls_options,
        acl_file=acl_file,
        messages=Messages(quiet=quiet, color=color),
    )


@overload
def command_options(function: Callable[..., Any]) -> Callable[..., Any]: ...


@overload
def command_options(
    *, formats: Sequence[str] = TABLE_FORMATS, fields: Sequence[Column] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def command_options(
    function: Callable[..., Any] | None = None,
    *,
    formats: Sequence[str] = TABLE_FORMATS,
    fields: Sequence[Column] = (),
) -> Any:
    """Add the common options to a command whose first parameter is `common: Common`.

    A second parameter `options` is a dataclass whose fields are the command's own
    options: its values arrive as one value. `formats` are what `--output` takes, the
    first by default; `fields` is what `-o help` lists.
    """
    if function is None:
        return lambda f: _with_common(f, tuple(formats), tuple(fields))
    return _with_common(function, tuple(formats), tuple(fields))


def _with_common(
    function: Callable[..., Any], formats: tuple[str, ...], fields: tuple[Column, ...]
) -> Callable[..., Any]:
    own = _parameters(function)
    if not own or own[0].name != "common":
        raise TypeError(f"{function.__qualname__}: the first parameter is not `common`")
    own = own[1:]
    options_type = own[0].annotation if own and own[0].name == "options" else None
    if options_type is not None:
        own = _parameters(options_type)
    own_names = {parameter.name for parameter in own}
    common = [p for p in _parameters(_build_common) if p.name not in own_names]
    common = [_output_parameter(p, formats, fields) for p in common]
    common_names = {parameter.name for parameter in common}

    @wraps(function)
    def run(**values: Any) -> Any:
        given = {name: values.pop(name) for name in common_names}
        given.setdefault("output", formats[0])
        given.setdefault("namesrv", parse_namesrv(NAMESRV_DEFAULT))
        common_value = _build_common(**given)
        from rmqcli.cli.ui import log

        log.configure(verbose=common_value.verbose, quiet=common_value.quiet)
        show_times(common_value.messages, values)
        if options_type is not None:
            return function(common_value, options_type(**values))
        return function(common_value, **values)

    signature = inspect.Signature([*own, *common])
    run.__signature__ = signature  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    del run.__wrapped__  # Typer would read its hints
    return run


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of `function`, annotations resolved, all keyword-only."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(
            annotation=hints.get(parameter.name, str),
            kind=inspect.Parameter.KEYWORD_ONLY,
        )
        for parameter in inspect.signature(function).parameters.values()
    ]


def _output_parameter(
    parameter: inspect.Parameter, formats: tuple[str, ...], fields: tuple[Column, ...]
) -> inspect.Parameter:
    """`--output` as this command takes it; any other parameter as it is."""
    if parameter.name != "output":
        return parameter
    choices = formats
    if fields:
        choices = (*formats, "help")

    def show_fields(value: str) -> str:
        if value == "help" and fields:
            write_field_help(fields)
            raise typer.Exit
        return value

    option = _common(
        "--output",
        "-o",
        parser=choice_parser(choices),
        metavar="|".join(choices),
        callback=show_fields,
        is_eager=True,
        help="Form of the data" + ("; help lists its fields." if fields else "."),
    )
    return parameter.replace(annotation=Annotated[str, option], default=formats[0])
