"""``rocketlens namesrv``: a name server."""

from argparse import ArgumentParser, Namespace
from typing import Final

from rocketlens.cli.options import (
    add_bind,
    add_log_options,
    add_metrics_port,
    add_print_config,
    port_number,
)
from rocketlens.cli.servers.servers import (
    add_configuration,
    configuration_text,
    errors_name_lines,
    log_start,
    print_configuration,
    status_port,
)
from rocketlens.model.message import Host
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import print_ready

EXAMPLES: Final = (
    ("rocketlens namesrv", "on port 9876"),
    ("rocketlens namesrv -p 19876", "on another port"),
    ("rocketlens namesrv -c namesrv.conf", "with RocketMQ's keys"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "-p", "--port", metavar="N", type=port_number, help="default: 9876; 0: any free port"
    )
    add_bind(parser, "bindAddress of namesrv.conf, else 127.0.0.1")
    add_print_config(parser)
    add_log_options(parser)
    add_metrics_port(parser)
    add_configuration(parser, "namesrv.conf")


def run(arguments: Namespace) -> ExitCode:
    """Serve until a signal comes."""
    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.namesrv.config import NameServerConfig, parse_config
    from rocketlens.namesrv.service import run as run_name_server
    from rocketlens.net.event_loop import run as run_loop

    log_to_stderr(arguments)
    text = configuration_text(arguments.config)
    with errors_name_lines(arguments.config, text, "namesrv.conf"):
        config = parse_config(text, arguments.port, arguments.bind)
    values = config.properties_in_effect()
    if arguments.print_config:
        print_configuration(values)
        return ExitCode.OK
    log_start(arguments.config, values, NameServerConfig().properties_in_effect())
    with status_port(arguments) as status:
        run_loop(run_name_server(config, ready=_print_ready, status=status))
    return ExitCode.OK


def _print_ready(bound: Host) -> None:
    print_ready(f"name server {bound}")
