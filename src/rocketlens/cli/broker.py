"""``rocketlens broker``: a broker, registered with name servers that run elsewhere."""

from argparse import Namespace
from typing import Final

from rocketlens.broker.config import parse_settings
from rocketlens.broker.service import run as run_broker
from rocketlens.cli.servers import configuration_text, index_command, log_to_stderr
from rocketlens.client.name_servers import name_server_addresses
from rocketlens.net.event_loop import run as run_loop
from rocketlens.terminal.cluster_access import name_servers_of_environment

_DONE: Final = 0


def run(arguments: Namespace) -> int:
    """Serve until a signal comes."""
    log_to_stderr()
    settings = parse_settings(configuration_text(arguments.config))
    given = arguments.namesrv or settings.broker.namesrvAddr or name_servers_of_environment()
    # None is an error: a broker that no client finds is of no use.
    addresses = name_server_addresses(given)
    settings = settings.with_broker(namesrvAddr=";".join(addresses))
    builder = index_command(arguments, settings)
    run_loop(run_broker(settings, ready=_say_ready, index_command=builder))
    return _DONE


def _say_ready(address: str) -> None:
    print(f"ready: broker {address}", flush=True)
