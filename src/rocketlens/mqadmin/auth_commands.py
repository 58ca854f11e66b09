"""Users and policies of RocketMQ 5: createUser to copyAcl.

RocketMQ 4's tool does not have these commands. A change applies to one broker, or to all brokers of
a cluster. Users are read from one broker, or from the first master of a cluster that has some;
policies from each master.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final, TypeVar

from rocketlens.errors import BadInput
from rocketlens.mqadmin.account_commands import addresses_of, change, list_text, table_row
from rocketlens.mqadmin.printing.form import NULL
from rocketlens.mqadmin.tool import Call
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketlens.wire.commands.auth import (
    AUTH_CREATE_ACL,
    AUTH_CREATE_USER,
    AUTH_DELETE_ACL,
    AUTH_DELETE_USER,
    AUTH_GET_ACL,
    AUTH_GET_USER,
    AUTH_LIST_ACL,
    AUTH_LIST_USER,
    AUTH_UPDATE_ACL,
    AUTH_UPDATE_USER,
    AclRequest,
    DeleteAclRequest,
    ListAclsRequest,
    ListUsersRequest,
    UserRequest,
)
from rocketlens.wire.declare import Command, Q, read_body, write_body

B = TypeVar("B")
_USER_WIDTHS: Final = (16, 22, 22, 22)
_USER_HEAD: Final = ("#UserName", "#Password", "#UserType", "#UserStatus")
_ACL_WIDTHS: Final = (16, 10, 22, 20, 24, 10)
_ACL_HEAD: Final = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")


async def create_user(call: Call) -> None:
    info = UserInfo(
        username=call.given.required("u"),
        password=call.given.required("p"),
        user_type=call.given.text("t"),
    )
    header = UserRequest(username=info.username)
    await change(call, "create user to", AUTH_CREATE_USER, header, write_body(info))


async def update_user(call: Call) -> None:
    info = UserInfo(
        username=call.given.required("u"),
        password=call.given.text("p"),
        user_type=call.given.text("t"),
        user_status=call.given.text("s"),
    )
    changes = (info.password, info.user_type, info.user_status)
    if sum(each is not None for each in changes) != 1:
        raise BadInput("updateUser: one of -p, -t and -s is expected")
    header = UserRequest(username=info.username)
    await change(call, "update user to", AUTH_UPDATE_USER, header, write_body(info))


async def delete_user(call: Call) -> None:
    header = UserRequest(username=call.given.required("u"))
    await change(call, "delete user to", AUTH_DELETE_USER, header)


async def get_user(call: Call) -> None:
    for address in await addresses_of(call, masters_only=True):
        user = await _user(call, address, call.given.text("u"))
        if user is not None:
            call.print(_user_rows(call, [user]))
            return


async def list_users(call: Call) -> None:
    for address in await addresses_of(call, masters_only=True):
        users = await _users(call, address, call.given.text("f"))
        if users:
            call.print(_user_rows(call, users))
            if call.given.text("b") is None:
                call.print(f"get user from {address} success.\n")
            return


async def copy_users(call: Call) -> None:
    source, target = call.given.required("f"), call.given.required("t")
    await call.cluster.all_brokers()
    names = call.given.text("u")
    if names:
        candidates = [await _user(call, source, name) for name in names.split(",") if name]
        users = [user for user in candidates if user is not None]
    else:
        users = list(await _users(call, source, None))
    for user in users:
        is_new = await _user(call, target, user.username) is None
        command = AUTH_CREATE_USER if is_new else AUTH_UPDATE_USER
        header = UserRequest(username=user.username)
        await call.cluster.ask(target, command, header, write_body(user))
        name = call.form.shown(user.username or "")
        call.print(f"copy user of {name} from {source} to {target} success.\n")


async def create_acl(call: Call) -> None:
    info = _acl_info(call)
    header = AclRequest(subject=info.subject)
    await change(call, "create acl to", AUTH_CREATE_ACL, header, write_body(info))


async def update_acl(call: Call) -> None:
    info = _acl_info(call)
    header = AclRequest(subject=info.subject)
    await change(call, "update acl to", AUTH_UPDATE_ACL, header, write_body(info))


async def delete_acl(call: Call) -> None:
    header = DeleteAclRequest(subject=call.given.required("s"), resource=call.given.text("r"))
    await change(call, "delete acl to", AUTH_DELETE_ACL, header)


async def get_acl(call: Call) -> None:
    for address in await addresses_of(call, masters_only=True):
        acl = await _acl(call, address, call.given.text("s"))
        if acl is not None:
            call.print(_acl_rows(call, [acl]))


async def list_acls(call: Call) -> None:
    for address in await addresses_of(call, masters_only=True):
        acls = await _acls(call, address, call.given.text("s"), call.given.text("r"))
        if acls:
            call.print(_acl_rows(call, acls))


async def copy_acls(call: Call) -> None:
    source, target = call.given.required("f"), call.given.required("t")
    await call.cluster.all_brokers()
    subjects = call.given.text("s")
    if subjects:
        candidates = [await _acl(call, source, each) for each in subjects.split(",") if each]
        acls = [acl for acl in candidates if acl is not None]
    else:
        acls = list(await _acls(call, source))
    for acl in acls:
        is_new = await _acl(call, target, acl.subject) is None
        command = AUTH_CREATE_ACL if is_new else AUTH_UPDATE_ACL
        header = AclRequest(subject=acl.subject)
        await call.cluster.ask(target, command, header, write_body(acl))
        subject = call.form.shown(acl.subject or "")
        call.print(f"copy acl of {subject} from {source} to {target} success.\n")


async def _read(
    call: Call, address: str, command: Command[Q, Any], header: Q, body_type: type[B]
) -> B | None:
    answer = await call.cluster.ask(address, command, header)
    return read_body(body_type, answer.body) if answer.body else None


async def _user(call: Call, address: str, name: str | None) -> UserInfo | None:
    return await _read(call, address, AUTH_GET_USER, UserRequest(username=name), UserInfo)


async def _users(call: Call, address: str, text: str | None) -> tuple[UserInfo, ...]:
    header = ListUsersRequest(filter=text)
    return await _read(call, address, AUTH_LIST_USER, header, tuple[UserInfo, ...]) or ()


async def _acl(call: Call, address: str, subject: str | None) -> AclInfo | None:
    return await _read(call, address, AUTH_GET_ACL, AclRequest(subject=subject), AclInfo)


async def _acls(
    call: Call, address: str, subject: str | None = None, resource: str | None = None
) -> tuple[AclInfo, ...]:
    header = ListAclsRequest(subject_filter=subject, resource_filter=resource)
    return await _read(call, address, AUTH_LIST_ACL, header, tuple[AclInfo, ...]) or ()


def _acl_info(call: Call) -> AclInfo:
    given = call.given
    sources = given.text("i")
    entries = tuple(
        PolicyEntryInfo(
            resource=resource,
            actions=_words(given.required("a")),
            source_ips=None if sources is None else _words(sources),
            decision=given.required("d"),
        )
        for resource in _words(given.required("r"))
    )
    return AclInfo(subject=given.required("s"), policies=(PolicyInfo(entries=entries),))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word)


def _user_rows(call: Call, users: Iterable[UserInfo]) -> str:
    values = attrgetter("username", "password", "user_type", "user_status")
    rows = [_USER_HEAD, *([each or NULL for each in values(user)] for user in users)]
    return "".join(table_row(call, row, _USER_WIDTHS) for row in rows)


def _acl_rows(call: Call, acls: Iterable[AclInfo]) -> str:
    rows: list[tuple[str, ...]] = [_ACL_HEAD]
    for acl in acls:
        subject = acl.subject or NULL
        if not acl.policies:
            rows.append((subject, "", "", "", "", ""))
        for policy in acl.policies or ():
            rows += [
                (
                    subject,
                    policy.policy_type or NULL,
                    entry.resource or NULL,
                    list_text(entry.actions, NULL),
                    list_text(entry.source_ips, NULL),
                    entry.decision or NULL,
                )
                for entry in policy.entries or ()
            ]
    return "".join(table_row(call, row, _ACL_WIDTHS) for row in rows)
