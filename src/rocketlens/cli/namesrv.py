"""``rocketlens namesrv``: a name server."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from rocketlens.cli.options import port_number
from rocketlens.cli.servers import add_configuration, configuration_text
from rocketlens.terminal.exit_code import ExitCode

if TYPE_CHECKING:
    from rocketlens.model.message import Host


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "-p", "--port", metavar="N", type=port_number, help="default: 9876; 0: any free port"
    )
    add_configuration(parser, "namesrv.conf")


def run(arguments: Namespace) -> ExitCode:
    """Serve until a signal comes."""
    from dataclasses import replace

    from rocketlens.broker.config import take_tls, warn_if_open, warn_of_unknown
    from rocketlens.cli.log_lines import log_to_stderr
    from rocketlens.namesrv.service import NameServerConfig
    from rocketlens.namesrv.service import run as run_name_server
    from rocketlens.net.event_loop import run as run_loop
    from rocketlens.net.tls import TLS_KEYS
    from rocketlens.store.write.config import parse_properties

    log_to_stderr()
    tls, values = take_tls(parse_properties(configuration_text(arguments.config)))
    config, unknown = NameServerConfig.from_properties(values)
    warn_of_unknown(values, unknown, (*NameServerConfig.KEYS, *TLS_KEYS), "namesrv.conf")
    config = replace(config, tls=tls.server)
    if arguments.port is not None:
        config = replace(config, port=arguments.port)
    warn_if_open(config.host, tls)
    run_loop(run_name_server(config, ready=_print_ready))
    return ExitCode.OK


def _print_ready(bound: "Host") -> None:
    print(f"ready: name server {bound}", flush=True)
