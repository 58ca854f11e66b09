"""Runtime information of a broker (28), its configuration (26, changed by 25), and offsets that
slaves take over: those of consumers (43) and of delayed messages (45).
"""

from typing import Final

from rocketlens.wire.codes import RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import declare, text


@declare("GetBrokerConfigResponseHeader")
class GetBrokerConfigResponse:
    """The version of a broker's configuration; the body is a Java properties file."""

    version: str = text("version")


GET_BROKER_RUNTIME_INFO: Final = Command(RequestCode.GET_BROKER_RUNTIME_INFO, NoFields, NoFields)
GET_BROKER_CONFIG: Final = Command(RequestCode.GET_BROKER_CONFIG, NoFields, GetBrokerConfigResponse)
UPDATE_BROKER_CONFIG: Final = Command(RequestCode.UPDATE_BROKER_CONFIG, NoFields, NoFields)
GET_ALL_CONSUMER_OFFSET: Final = Command(RequestCode.GET_ALL_CONSUMER_OFFSET, NoFields, NoFields)
GET_ALL_DELAY_OFFSET: Final = Command(RequestCode.GET_ALL_DELAY_OFFSET, NoFields, NoFields)
"""Bodies of both: the text of the broker's own file."""
