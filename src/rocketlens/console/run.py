"""``rocketlens console``: the web console over stores, archives and clusters."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.errors import BadInput, PackageMissing
from rocketlens.model.installation import install_command
from rocketlens.model.text.escape import printable
from rocketlens.terminal.contexts import CONTEXT_VARIABLE, add_connection_options
from rocketlens.terminal.output import ExitCode, print_ready

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack
    from ipaddress import IPv4Network, IPv6Network

    from rocketlens.console.login.audit import AuditLog
    from rocketlens.console.login.oidc_settings import OidcSettings
    from rocketlens.decode.rules import BodyRules
    from rocketlens.model.message import Host
    from rocketlens.net.event_loop import StopRequest
    from rocketlens.terminal.contexts import Context

_DEFAULT_BIND: Final = ("127.0.0.1", 8088)
EXAMPLES: Final = """
rocketlens console --store /data/rocketmq/store  # a store directory, in a browser
rocketlens console --namesrv 127.0.0.1:9876  # a running cluster
rocketlens console --context prod --archive /lake/rocketmq  # several sources, searched together
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Prints one line when it is ready. SIGTERM or Ctrl-C stops it. Without "
        "--users\nit listens on the loopback interface only, and shows everything."
    )
    add_sources(parser)
    parser.add_argument(
        "--bind",
        "--port",
        metavar="[IP:]PORT",
        type=_bind_address,
        default=_DEFAULT_BIND,
        help="where to listen (default: 127.0.0.1:8088); 0: any free port",
    )
    parser.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="a host name by which browsers reach the console, such as a proxy's; repeat it for "
        "several (default: localhost and addresses)",
    )
    parser.add_argument(
        "--trusted-proxy",
        metavar="IP[/BITS]",
        type=proxy_network,
        action="append",
        default=[],
        help="a proxy, or a range of them, whose X-Forwarded-For and X-Forwarded-Proto are "
        "trusted; repeat it for several (default: none)",
    )
    parser.add_argument(
        "--users",
        metavar="FILE",
        help="TOML file with users or their OpenID Connect provider, and their rights",
    )
    parser.add_argument(
        "--audit-log",
        metavar="FILE",
        help="append a line of JSON for each login, refusal, view of a message, and act",
    )
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="also stop when standard input ends"
    )
    parser.add_argument(
        "--hash-password",
        action="store_true",
        help="read a password from the terminal or the first line of stdin, print its hash for the "
        "users file, and exit",
    )
    add_connection_options(parser, several_contexts=True)


def add_sources(parser: ArgumentParser) -> None:
    """Add the options that `named_contexts` and `body_rules` read."""
    parser.add_argument(
        "--store",
        metavar="DIR",
        action="append",
        help="a directory that holds commitlog/; repeat it for several",
    )
    parser.add_argument(
        "--broker-conf",
        dest="store",
        metavar="FILE",
        action="append",
        help="a broker.conf that names the store directories",
    )
    parser.add_argument(
        "--archive",
        metavar="DIR",
        action="append",
        help="an archive, a directory or s3://BUCKET/PREFIX; repeat it for several",
    )
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help="a running cluster: host:port of its name server, several separated by semicolons",
    )
    parser.add_argument(
        "--body-rules",
        metavar="FILE",
        help="TOML file with rules for decoding bodies by topic, as for `show`",
    )


def body_rules(arguments: Namespace) -> "BodyRules":
    """Return the rules of ``--body-rules``; no rules without the option.

    :raises BadInput: if the file cannot be used.
    """
    from pathlib import Path

    from rocketlens.decode.rules import BodyRules

    if arguments.body_rules is None:
        return BodyRules()
    return BodyRules.from_file(Path(arguments.body_rules))


def open_audit(arguments: Namespace, opened: "AsyncExitStack") -> "AuditLog":
    """Return the audit log of ``--audit-log``; without the option one that writes nothing."""
    from pathlib import Path

    from rocketlens.console.login.audit import AuditLog, open_log

    if arguments.audit_log is None:
        return AuditLog()
    return AuditLog(opened.enter_context(open_log(Path(arguments.audit_log))))


def _bind_address(text: str) -> tuple[str, int]:
    """Parse ``PORT``, ``IP:PORT`` or ``[IPv6]:PORT``."""
    from rocketlens.model.config_keys import is_ip_address

    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else _DEFAULT_BIND[0]
    is_port = port.isascii() and port.isdigit() and len(port) <= 5
    if not is_ip_address(host) or not is_port or int(port) > limits.MAX_PORT:
        raise ArgumentTypeError(f"{printable(text)[:60]} is not IP:PORT, such as 127.0.0.1:8088")
    return host, int(port)


def proxy_network(text: str) -> "IPv4Network | IPv6Network":
    """Parse the address of a proxy, or a range such as ``10.0.0.0/8``."""
    from ipaddress import ip_network

    try:
        return ip_network(text, strict=False)
    except ValueError:
        text = f"{printable(text)[:60]} is not an address or a range of addresses"
        raise ArgumentTypeError(text) from None


def run(arguments: Namespace) -> ExitCode:
    from ipaddress import ip_address

    check_packages("the console", ("fastapi", "jinja2", "uvicorn"))
    from rocketlens.model.message import Host
    from rocketlens.net.event_loop import run as run_loop

    if arguments.hash_password:
        return _hash_password()
    address, port = arguments.bind
    if arguments.users is None and not ip_address(address).is_loopback:
        raise BadInput(
            f"--bind {address}: without users the console listens on the loopback interface only, "
            "because it shows everything; give --users FILE"
        )
    contexts = named_contexts(arguments)
    run_loop(_serve(Host(address, port), contexts, body_rules(arguments), arguments))
    return ExitCode.OK


def _hash_password() -> ExitCode:
    """Print the hash of a password. It is read, because other users can see arguments."""
    from getpass import getpass

    from rocketlens.console.login.users import PasswordHash

    if sys.stdin.isatty():
        password = getpass("Password: ")
        if password != getpass("Again: "):
            raise BadInput("the two passwords differ: try again")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    sys.stdout.write(f"{PasswordHash.of(password)}\n")
    return ExitCode.OK


async def _serve(
    bound: "Host",
    contexts: "Sequence[tuple[str | None, Context]]",
    rules: "BodyRules",
    arguments: Namespace,
) -> None:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from rocketlens.console.app import Console
    from rocketlens.console.login.users import read_users
    from rocketlens.console.server import listening, serve
    from rocketlens.console.sources.sources import open_sources
    from rocketlens.model.message import Host
    from rocketlens.net.event_loop import end_on_signals

    users = None if arguments.users is None else read_users(Path(arguments.users))
    if users is not None and users.oidc is not None:
        _check_oidc(users.oidc, bound)
    ending = end_on_signals()
    if arguments.until_stdin_ends:
        _end_with_stdin(ending)
    with listening(bound) as listener:
        async with AsyncExitStack() as opened:
            audit = open_audit(arguments, opened)
            sources = await open_sources(contexts, opened)
            shown = Host(*listener.getsockname()[:2])
            titles = ", ".join(printable(each.title) for each in sources.opened)
            print_ready(f"http://{shown}/, {titles}")
            console = Console(sources, rules=rules, names=arguments.host, audit=audit, users=users)
            opened.push_async_callback(console.close)
            console.start()
            await serve(console, listener, ending, arguments.trusted_proxy)


def _check_oidc(settings: "OidcSettings", bound: "Host") -> None:
    """Check that OpenID Connect logins can work at this address.

    :raises BadInput: if the console's public address is needed and not configured.
    :raises PackageMissing: if a package is missing.
    """
    from ipaddress import ip_address

    if settings.public_url is None and not ip_address(bound.address).is_loopback:
        raise BadInput(
            f"--bind {bound.address}: [oidc] in the users file needs public_url, the address by "
            "which browsers reach the console, such as https://rocketlens.example.com"
        )
    check_packages("the login by OpenID Connect", ("cryptography", "httpx", "jwt"))


def check_packages(what: str, names: "Sequence[str]", extra: str = "console") -> None:
    """Check that packages are installed.

    :raises PackageMissing: if one is missing. The message has the command that installs ``extra``.
    """
    from importlib import import_module

    try:
        for each in names:
            import_module(each)
    except ImportError as error:
        name = error.name or "a package"
        text = f"{what} needs {name}: {install_command(extra)}"
        raise PackageMissing(text, name=name) from error


def _end_with_stdin(ending: "StopRequest") -> None:
    """Request a stop when standard input ends: the parent process has ended."""
    import asyncio
    import os
    import threading

    loop = asyncio.get_running_loop()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        # The console can have stopped meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ending.ask, "standard input ended")

    threading.Thread(target=wait, name="rocketlens-stdin", daemon=True).start()


def named_contexts(arguments: Namespace) -> "list[tuple[str | None, Context]]":
    """Return the context of each source, with its name if it has one.

    :raises BadInput: if the arguments name no source.
    """
    from rocketlens.terminal.cluster_access import choose_context
    from rocketlens.terminal.contexts import Context, named_context

    named: list[tuple[str | None, Context]] = [
        (name, named_context(name)) for name in arguments.context or ()
    ]
    named += [(None, Context(store=each)) for each in arguments.store or ()]
    named += [(None, Context(archive=each)) for each in arguments.archive or ()]
    if arguments.namesrv is not None or not named:
        single = Namespace(**{**vars(arguments), "store": None, "context": None})
        chosen = choose_context(single, takes_store=True, takes_archive=True)
        named.append((None, chosen))
    if not all(context.names_source for _, context in named):
        raise BadInput(
            "which store, archive or cluster? Give --store DIR, --archive DIR, --namesrv ADDR or "
            f"--context NAME, or set {CONTEXT_VARIABLE}"
        )
    return named
