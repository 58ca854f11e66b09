"""``rocketlens namesrv``: a name server."""

from argparse import Namespace
from dataclasses import replace
from typing import Final

from rocketlens.broker.config import take_tls, warn_if_open, warn_of_unknown
from rocketlens.cli.servers import configuration_text, log_to_stderr
from rocketlens.model.message import Host
from rocketlens.namesrv.service import NameServerConfig
from rocketlens.namesrv.service import run as run_name_server
from rocketlens.net.event_loop import run as run_loop
from rocketlens.net.tls import TLS_KEYS
from rocketlens.store.write.config import parse_properties

_DONE: Final = 0


def run(arguments: Namespace) -> int:
    """Serve until a signal comes."""
    log_to_stderr()
    tls, values = take_tls(parse_properties(configuration_text(arguments.config)))
    config, unknown = NameServerConfig.from_properties(values)
    warn_of_unknown(values, unknown, (*NameServerConfig.KEYS, *TLS_KEYS), "namesrv.conf")
    config = replace(config, tls=tls.server)
    if arguments.port is not None:
        config = replace(config, port=arguments.port)
    warn_if_open(config.host, tls)
    run_loop(run_name_server(config, ready=_say_ready))
    return _DONE


def _say_ready(bound: Host) -> None:
    print(f"ready: name server {bound}", flush=True)
