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
    from rocketlens.cli.log_lines import log_to_stderr
    from rocketlens.namesrv.config import parse_config
    from rocketlens.namesrv.service import run as run_name_server
    from rocketlens.net.event_loop import run as run_loop

    log_to_stderr()
    config = parse_config(configuration_text(arguments.config), arguments.port)
    run_loop(run_name_server(config, ready=_print_ready))
    return ExitCode.OK


def _print_ready(bound: "Host") -> None:
    print(f"ready: name server {bound}", flush=True)
