"""Accounts of plain_acl.yml, as RocketMQ 4's tools ask for them (50 to 54).

Source: ``AdminBrokerProcessor``, ``PlainPermissionManager``.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens.broker.access.plain_files import PlainAcl
from rocketlens.errors import BadInput
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import in_thread
from rocketlens.wire.bodies.auth import PlainAccessConfig
from rocketlens.wire.bodies.topic import DataVersion
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import auth as commands
from rocketlens.wire.declare import TEXT, map_of, object_of, write_body

UPDATE_FAILED: Final = 209
DELETE_FAILED: Final = 210
UPDATE_WHITE_FAILED: Final = 211
"""RocketMQ 4's codes; RocketMQ 5 has others of these numbers."""

_VERSIONS: Final = map_of(TEXT, object_of(DataVersion))


class PlainProcessor:
    """Keeps accounts for tools. ``names``: cluster, name and address of the broker."""

    def __init__(self, plain_acl: PlainAcl, names: tuple[str, str, str]) -> None:
        self._acl: Final = plain_acl
        self._names: Final = names

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update,
            RequestCode.DELETE_ACL_CONFIG: self.delete,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.accounts,
        }

    async def update(self, command: RemotingCommand, _: Channel) -> Response:
        """Make or change an account."""
        request = commands.UPDATE_AND_CREATE_ACL_CONFIG.request.decode(command.ext_fields)
        config = PlainAccessConfig(
            access_key=request.access_key,
            secret_key=request.secret_key,
            white_remote_address=request.white_remote_address,
            admin=request.admin,
            default_topic_perm=request.default_topic_perm,
            default_group_perm=request.default_group_perm,
            topic_perms=_split(request.topic_perms),
            group_perms=_split(request.group_perms),
        )
        try:
            await self._acl.update(config)
        except (BadInput, OSError) as error:
            return Response(UPDATE_FAILED, remark=str(error))
        return Response()

    async def delete(self, command: RemotingCommand, _: Channel) -> Response:
        """Remove an account."""
        request = commands.DELETE_ACL_CONFIG.request.decode(command.ext_fields)
        try:
            if await self._acl.delete(request.access_key):
                return Response()
        except (BadInput, OSError) as error:
            return Response(DELETE_FAILED, remark=str(error))
        account = f"The accesskey[{request.access_key}] corresponding to accessConfig"
        return Response(DELETE_FAILED, remark=f"{account} has been deleted failed.")

    def versions(self, _: RemotingCommand, __: Channel) -> Response:
        """Return which state each file is in."""
        versions = self._acl.loaded.versions
        default = versions.get(str(self._acl.default_file), DataVersion())
        cluster, name, address = self._names
        header = commands.GetBrokerAclConfigResponse(
            version=write_body(default).decode(),
            all_acl_file_version=_VERSIONS.write(versions),
            broker_name=name,
            broker_addr=address,
            cluster_name=cluster,
        )
        return Response(ext_fields=commands.GET_BROKER_CLUSTER_ACL_INFO.response.encode(header))

    async def update_white(self, command: RemotingCommand, _: Channel) -> Response:
        """Replace the addresses that need no account."""
        request = commands.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG.request.decode(command.ext_fields)
        addresses = list(_split(request.global_white_addrs) or ())
        try:
            if await self._acl.set_white_addresses(addresses, request.acl_file_full_path):
                return Response()
        except (BadInput, OSError) as error:
            return Response(UPDATE_WHITE_FAILED, remark=str(error))
        remark = f"The globalWhiteAddresses[{request.global_white_addrs}] has been updated failed."
        return Response(UPDATE_WHITE_FAILED, remark=remark)

    async def accounts(self, _: RemotingCommand, __: Channel) -> Response:
        """Return all accounts, with their secrets."""
        table = self._acl.table()
        return Response(body=await in_thread(lambda: write_body(table)))


def _split(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(each for each in text.split(",") if each)
