"""Runtime information of a broker (28) and its configuration (26, changed by 25)."""

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
COMMANDS: Final = (GET_BROKER_RUNTIME_INFO, GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG)
