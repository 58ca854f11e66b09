"""Users and accounts of access control, for RocketMQ's tools.

Version 5 has users (3001 to 3005) and their policies (3006 to 3010); only a super user can create,
change or delete a super user. Changes are answered after they are written. Version 4 has accounts
of plain_acl.yml (52 and 54); changes of them (50, 51, 53) are refused. Source:
``AdminBrokerProcessor``, ``PlainPermissionManager``.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.access.plain_files import PlainAcl
from rocketlens.broker.access.policy import UserType, named, subject_of
from rocketlens.broker.access.user_rules import Refused, Users
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers, system_error
from rocketlens.errors import CommandBodyError
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import in_thread
from rocketlens.wire.bodies.auth import AclInfo, UserInfo
from rocketlens.wire.bodies.tables import DataVersion
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import auth as commands
from rocketlens.wire.declare import read_body, shape_of, write_body

_BLANK: Final = Response(ResponseCode.INVALID_PARAMETER, remark="The username is blank")
_SUPER_BY_SUPER: Final = "The super user can only be update by super user"
_NO_SUBJECT: Final = "An system error occurred, please try again later."
_FILTER: Final = "ask with a filter"
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
    "they are read again within seconds. Or create users from the accounts: start the broker with "
    "authenticationEnabled=true, authorizationEnabled=true and migrateAuthFromV1Enabled=true in "
    "place of aclEnable=true, and change these with rocketlens mqadmin updateUser and updateAcl"
)

_VERSIONS: Final = shape_of(dict[str, DataVersion])


async def create_user(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.AUTH_CREATE_USER.request.decode(command.ext_fields)
    if not request.username:
        return _BLANK
    info = _user_info(core, command, "The super user can only be create by super user")
    if isinstance(info, Response):
        return info
    await _users(core).create_user(request.username, info)
    return Response()


async def update_user(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.AUTH_UPDATE_USER.request.decode(command.ext_fields)
    if not request.username:
        return _BLANK
    info = _user_info(core, command, _SUPER_BY_SUPER)
    if isinstance(info, Response):
        return info
    _check_super(core, request.username, command)
    await _users(core).update_user(request.username, info)
    return Response()


async def delete_user(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.AUTH_DELETE_USER.request.decode(command.ext_fields)
    _check_super(core, request.username or "", command)
    if request.username in _users(core).users.entries:
        await _users(core).delete_user(request.username or "")
    return Response()


def user(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.AUTH_GET_USER.request.decode(command.ext_fields)
    if not (request.username or "").strip():
        return _BLANK
    user = _users(core).users.entries.get(request.username or "")
    return Response() if user is None else Response(body=write_body(user.info()))


async def list_users(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    text = commands.AUTH_LIST_USER.request.decode(command.ext_fields).filter or ""
    users = _users(core).users.entries
    chosen = tuple(users[name].info() for name in _in_order(users) if _contains(name, text))
    names = sum(len(each.username or "") + len(each.password or "") for each in chosen)
    least_bytes = names + _ROW_BYTES * len(chosen)
    async with core.large_answers.turn(channel, least_bytes, _FILTER):
        return Response(body=await in_thread(lambda: write_body(chosen)) if chosen else b"")


async def put_acl(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.AUTH_CREATE_ACL.request.decode(command.ext_fields)
    if not command.body:
        return system_error("The body of acl is null")
    info = read_body(AclInfo, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
    subject = subject_of(info.subject) or subject_of(request.subject)
    if subject is None:
        return system_error(_NO_SUBJECT)
    await _users(core).put_acl(subject, info)
    return Response()


async def delete_acl(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.AUTH_DELETE_ACL.request.decode(command.ext_fields)
    subject = subject_of(request.subject)
    await _users(core).delete_acl(subject, request.policy_type, request.resource)
    return Response()


def acl(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.AUTH_GET_ACL.request.decode(command.ext_fields)
    subject = subject_of(request.subject)
    if subject is None:
        return system_error(_NO_SUBJECT)
    policies = _users(core).acls.entries.get(subject)
    return Response() if policies is None else Response(body=write_body(policies.info()))


async def list_acls(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    request = commands.AUTH_LIST_ACL.request.decode(command.ext_fields)
    acls = _users(core).acls.entries
    rows, chosen = 0, []
    for subject in _in_order(acls):
        if _contains(subject, request.subject_filter or ""):
            of_resource = request.resource_filter or ""
            # As in RocketMQ, a filter that is in the subject selects all its resources.
            info = acls[subject].info("" if of_resource in subject else of_resource)
            if info.policies:
                rows += sum(max(len(each.entries or ()), 1) for each in info.policies)
                chosen.append(info)
    async with core.large_answers.turn(channel, rows * _ROW_BYTES, _FILTER):
        return Response(body=await in_thread(lambda: write_body(tuple(chosen))) if chosen else b"")


def _check_super(core: BrokerCore, username: str, command: RemotingCommand) -> None:
    """:raises Refused: if another user changes a super user."""
    user = _users(core).users.entries.get(username)
    is_super = user is not None and user.user_type is UserType.SUPER
    if is_super and not _users(core).is_of_super(command):
        raise Refused(_SUPER_BY_SUPER)


def _user_info(core: BrokerCore, command: RemotingCommand, refusal: str) -> UserInfo | Response:
    """Return the user in a body; ``refusal`` if only a super user can create it."""
    if not command.body:
        raise CommandBodyError("no UserInfo in the body")
    info = read_body(UserInfo, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
    is_super = named(UserType, info.user_type) is UserType.SUPER
    return system_error(refusal) if is_super and not _users(core).is_of_super(command) else info


def _in_order(names: Mapping[str, object]) -> list[str]:
    """Sort by the bytes of UTF-8, as RocketMQ does."""
    return sorted(names, key=lambda name: name.encode("utf-8", "surrogatepass"))


def _contains(name: str, text: str) -> bool:
    return not text.strip() or text in name


def refuse_change(_: BrokerCore, command: RemotingCommand, __: Channel) -> Response:
    return Response(_CHANGES[command.code], remark=_ONLY_READ)


def account_versions(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    accounts = _accounts(core)
    versions = accounts.loaded.versions
    default = versions.get(str(accounts.default_file), DataVersion())
    header = commands.GetBrokerAclConfigResponse(
        version=write_body(default).decode(),
        all_acl_file_version=_VERSIONS.write(versions),
        broker_name=core.config.brokerName,
        broker_addr=core.address,
        cluster_name=core.config.brokerClusterName,
    )
    return Response(ext_fields=commands.GET_BROKER_CLUSTER_ACL_INFO.response.encode(header))


async def list_accounts(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    table = _accounts(core).table()
    return Response(body=await in_thread(lambda: write_body(table)))


def _users(core: BrokerCore) -> Users:
    assert core.access is not None and core.access.users is not None  # noqa: S101, PT018 - with these codes alone
    return core.access.users


def _accounts(core: BrokerCore) -> PlainAcl:
    assert core.access is not None and core.access.accounts is not None  # noqa: S101, PT018 - with these codes alone
    return core.access.accounts


USER_HANDLERS: Final[Handlers] = {
    RequestCode.AUTH_CREATE_USER: create_user,
    RequestCode.AUTH_UPDATE_USER: update_user,
    RequestCode.AUTH_DELETE_USER: delete_user,
    RequestCode.AUTH_GET_USER: user,
    RequestCode.AUTH_LIST_USER: list_users,
    RequestCode.AUTH_CREATE_ACL: put_acl,
    RequestCode.AUTH_UPDATE_ACL: put_acl,
    RequestCode.AUTH_DELETE_ACL: delete_acl,
    RequestCode.AUTH_GET_ACL: acl,
    RequestCode.AUTH_LIST_ACL: list_acls,
}
ACCOUNT_HANDLERS: Final[Handlers] = {
    **dict.fromkeys(_CHANGES, refuse_change),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: account_versions,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: list_accounts,
}
