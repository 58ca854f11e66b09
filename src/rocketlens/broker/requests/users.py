"""Users and accounts, as RocketMQ's tools ask for them.

Version 5 has users (3001 to 3005) and their policies (3006 to 3010); only a super user makes,
changes or removes one. Changes are answered when they are on the disk. Version 4 has accounts of
plain_acl.yml (52 and 54); changes of them (50, 51, 53) are refused. Source:
``AdminBrokerProcessor``, ``PlainPermissionManager``.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.access.plain_files import PlainAcl
from rocketlens.broker.access.policy import UserType, named, subject_of
from rocketlens.broker.access.user_rules import Refused, Users
from rocketlens.errors import CommandBodyError
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.large_answers import Estimate, LargeAnswers
from rocketlens.net.pace import in_thread
from rocketlens.wire.bodies.auth import (
    AclInfo,
    UserInfo,
)
from rocketlens.wire.bodies.tables import DataVersion
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.auth import (
    AUTH_CREATE_ACL,
    AUTH_CREATE_USER,
    AUTH_DELETE_ACL,
    AUTH_DELETE_USER,
    AUTH_GET_ACL,
    AUTH_GET_USER,
    AUTH_LIST_ACL,
    AUTH_LIST_USER,
    AUTH_UPDATE_USER,
    GET_BROKER_CLUSTER_ACL_INFO,
    GetBrokerAclConfigResponse,
)
from rocketlens.wire.declare import read_body, shape_of, write_body

_BLANK: Final = Response(ResponseCode.INVALID_PARAMETER, remark="The username is blank")
_SUPER_BY_SUPER: Final = "The super user can only be update by super user"
_NO_SUBJECT: Final = "An system error occurred, please try again later."
_ROW_BYTES: Final = 70
"""Bytes of the names of the members of a user or an entry."""
_CHANGES: Final[Mapping[int, int]] = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: 209,
    RequestCode.DELETE_ACL_CONFIG: 210,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: 211,
}
"""Requests to change accounts, with RocketMQ 4's codes for a failure of each."""
_ONLY_READ: Final = (
    "this broker only reads plain_acl.yml and the files of conf/acl: change them with an editor, "
    "they are read again within seconds. Or make users of the accounts: start the broker with "
    "authenticationEnabled=true, authorizationEnabled=true and migrateAuthFromV1Enabled=true in "
    "place of aclEnable=true, and change these with rocketlens mqadmin updateUser and updateAcl"
)

_VERSIONS: Final = shape_of(dict[str, DataVersion])


class UserProcessor:
    """Keeps users and policies for tools."""

    def __init__(self, users: Users, large_answers: LargeAnswers) -> None:
        self._users: Final = users
        self._large_answers: Final = large_answers

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    async def create_user(self, command: RemotingCommand, _: Channel) -> Response:
        """Make a user."""
        request = AUTH_CREATE_USER.request.decode(command.ext_fields)
        if not request.username:
            return _BLANK
        info = _user_info(command)
        if named(UserType, info.user_type) is UserType.SUPER and not self._is_super(command):
            remark = "The super user can only be create by super user"
            return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
        await self._users.create_user(request.username, info)
        return Response()

    async def update_user(self, command: RemotingCommand, _: Channel) -> Response:
        """Change a user."""
        request = AUTH_UPDATE_USER.request.decode(command.ext_fields)
        if not request.username:
            return _BLANK
        info = _user_info(command)
        if named(UserType, info.user_type) is UserType.SUPER and not self._is_super(command):
            return Response(ResponseCode.SYSTEM_ERROR, remark=_SUPER_BY_SUPER)
        self._check_super(request.username, command)
        await self._users.update_user(request.username, info)
        return Response()

    async def delete_user(self, command: RemotingCommand, _: Channel) -> Response:
        """Remove a user and its policies."""
        request = AUTH_DELETE_USER.request.decode(command.ext_fields)
        self._check_super(request.username or "", command)
        if request.username in self._users.users.entries:
            await self._users.delete_user(request.username or "")
        return Response()

    def user(self, command: RemotingCommand, _: Channel) -> Response:
        """Return a user, with its password."""
        request = AUTH_GET_USER.request.decode(command.ext_fields)
        if not (request.username or "").strip():
            return _BLANK
        user = self._users.users.entries.get(request.username or "")
        return Response() if user is None else Response(body=write_body(user.info()))

    async def list_users(self, command: RemotingCommand, channel: Channel) -> Response:
        """Return the users whose names contain a text."""
        text = AUTH_LIST_USER.request.decode(command.ext_fields).filter or ""
        users = self._users.users.entries
        chosen = tuple(users[name].info() for name in _in_order(users) if _contains(name, text))
        estimate = Estimate("ask with a filter")
        for each in chosen:
            estimate.add(_ROW_BYTES + len(each.username or "") + len(each.password or ""))
        async with self._large_answers.turn(channel, estimate):
            return Response(body=await in_thread(lambda: write_body(chosen)) if chosen else b"")

    async def put_acl(self, command: RemotingCommand, _: Channel) -> Response:
        """Add policies to a subject, or replace them."""
        request = AUTH_CREATE_ACL.request.decode(command.ext_fields)
        if not command.body:
            return Response(ResponseCode.SYSTEM_ERROR, remark="The body of acl is null")
        info = read_body(AclInfo, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
        subject = subject_of(info.subject) or subject_of(request.subject)
        if subject is None:
            return Response(ResponseCode.SYSTEM_ERROR, remark=_NO_SUBJECT)
        await self._users.put_acl(subject, info)
        return Response()

    async def delete_acl(self, command: RemotingCommand, _: Channel) -> Response:
        """Remove the policies of a subject, or one entry."""
        request = AUTH_DELETE_ACL.request.decode(command.ext_fields)
        subject = subject_of(request.subject)
        await self._users.delete_acl(subject, request.policy_type, request.resource)
        return Response()

    def acl(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the policies of a subject."""
        request = AUTH_GET_ACL.request.decode(command.ext_fields)
        subject = subject_of(request.subject)
        if subject is None:
            return Response(ResponseCode.SYSTEM_ERROR, remark=_NO_SUBJECT)
        policies = self._users.acls.entries.get(subject)
        return Response() if policies is None else Response(body=write_body(policies.info()))

    async def list_acls(self, command: RemotingCommand, channel: Channel) -> Response:
        """Return the policies of subjects; the filters are texts that names contain."""
        request = AUTH_LIST_ACL.request.decode(command.ext_fields)
        acls = self._users.acls.entries
        estimate = Estimate("ask with a filter")
        chosen = []
        for subject in _in_order(acls):
            if _contains(subject, request.subject_filter or ""):
                of_resource = request.resource_filter or ""
                # As in RocketMQ, a filter that is in the subject chooses all of its resources.
                info = acls[subject].info(None if of_resource in subject else of_resource)
                if info.policies:
                    rows = sum(len(each.entries or ()) for each in info.policies)
                    estimate.add(_ROW_BYTES, max(rows, 1))
                    chosen.append(info)
        async with self._large_answers.turn(channel, estimate):
            body = await in_thread(lambda: write_body(tuple(chosen))) if chosen else b""
            return Response(body=body)

    def _is_super(self, command: RemotingCommand) -> bool:
        return self._users.is_of_super(command)

    def _check_super(self, username: str, command: RemotingCommand) -> None:
        """Check that a super user is changed by one.

        :raises Refused: when it is not.
        """
        user = self._users.users.entries.get(username)
        is_super = user is not None and user.user_type is UserType.SUPER
        if is_super and not self._is_super(command):
            raise Refused(_SUPER_BY_SUPER)


def _user_info(command: RemotingCommand) -> UserInfo:
    if not command.body:
        raise CommandBodyError("no UserInfo in the body")
    return read_body(UserInfo, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)


def _in_order(names: Mapping[str, object]) -> list[str]:
    """Sort as RocketMQ does: by the bytes of UTF-8."""
    return sorted(names, key=lambda name: name.encode("utf-8", "surrogatepass"))


def _contains(name: str, text: str) -> bool:
    return not text.strip() or text in name


class PlainProcessor:
    """Keeps accounts for tools. ``names``: cluster, name and address of the broker."""

    def __init__(self, plain_acl: PlainAcl, names: tuple[str, str, str]) -> None:
        self._acl: Final = plain_acl
        self._names: Final = names

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            **dict.fromkeys(_CHANGES, self.refuse),
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.versions,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.accounts,
        }

    def refuse(self, command: RemotingCommand, _: Channel) -> Response:
        """Refuse to change the files."""
        return Response(_CHANGES[command.code], remark=_ONLY_READ)

    def versions(self, _: RemotingCommand, __: Channel) -> Response:
        """Return which state each file is in."""
        versions = self._acl.loaded.versions
        default = versions.get(str(self._acl.default_file), DataVersion())
        cluster, name, address = self._names
        header = GetBrokerAclConfigResponse(
            version=write_body(default).decode(),
            all_acl_file_version=_VERSIONS.write(versions),
            broker_name=name,
            broker_addr=address,
            cluster_name=cluster,
        )
        return Response(ext_fields=GET_BROKER_CLUSTER_ACL_INFO.response.encode(header))

    async def accounts(self, _: RemotingCommand, __: Channel) -> Response:
        """Return all accounts, with their secrets."""
        table = self._acl.table()
        return Response(body=await in_thread(lambda: write_body(table)))
