"""Accounts of RocketMQ 4: updateAclConfig, deleteAclConfig, getAclConfig and others.

RocketMQ 5.5's tool does not have these commands. The output is that of 4.9's tool.
"""

from collections.abc import Sequence
from typing import Any, Final

from rocketlens.errors import BadInput
from rocketlens.mqadmin.printing.form import NULL, columns, flag_text
from rocketlens.mqadmin.tool import Call
from rocketlens.terminal.output import time_text
from rocketlens.wire.bodies.auth import PlainAccessConfig, PlainAccessTable
from rocketlens.wire.bodies.tables import DataVersion
from rocketlens.wire.commands.auth import (
    DELETE_ACL_CONFIG,
    GET_BROKER_CLUSTER_ACL_CONFIG,
    GET_BROKER_CLUSTER_ACL_INFO,
    UPDATE_AND_CREATE_ACL_CONFIG,
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    UpdateGlobalWhiteAddrsRequest,
)
from rocketlens.wire.declare import Command, NoFields, Q, read_body

_WIDTHS: Final = (16, 22, 22, 20, 22, 22)
_HEAD: Final = (
    "#Cluster Name",
    "#Broker Name",
    "#Broker Addr",
    "#AclFilePath",
    "#AclConfigVersionNum",
    "#AclLastUpdateTime",
)


async def addresses_of(call: Call, *, masters_only: bool = False) -> list[str]:
    """Return the broker of -b, or the brokers or masters of the cluster of -c.

    :raises BadInput: if the name servers know none.
    """
    address, cluster = call.given.text("b"), call.given.text("c")
    brokers = (await call.cluster.all_brokers(cluster)).values()
    if address is not None:
        return [address]
    addresses = [
        each
        for broker in brokers
        for each in ([broker.master] if masters_only else broker.in_order)
        if each is not None
    ]
    if not addresses:
        raise BadInput(f"there is no broker in cluster {cluster}")
    return addresses


async def change(
    call: Call, text: str, command: Command[Q, Any], header: Q, body: bytes = b""
) -> None:
    """Send a request to the broker of -b, or all brokers of -c; print a line for each."""
    for address in await addresses_of(call):
        await call.cluster.ask(address, command, header, body)
        call.print(f"{text} {address} success.\n")


async def update(call: Call) -> None:
    given = call.given
    header = CreateAccessConfigRequest(
        access_key=given.required("a"),
        secret_key=given.required("s"),
        white_remote_address=given.text("w"),
        admin=given.flag("m"),
        default_topic_perm=given.text("i"),
        default_group_perm=given.text("u"),
        topic_perms=given.text("t"),
        group_perms=given.text("g"),
    )
    await change(
        call, "create or update plain access config to", UPDATE_AND_CREATE_ACL_CONFIG, header
    )
    call.print(call.form.shown(_account_text(header)))


async def delete(call: Call) -> None:
    header = DeleteAccessConfigRequest(access_key=call.given.required("a"))
    await change(call, "delete plain access config account from", DELETE_ACL_CONFIG, header)
    call.print(f"account's accesskey is:{call.form.shown(header.access_key)}")


async def update_white(call: Call) -> None:
    header = UpdateGlobalWhiteAddrsRequest(
        global_white_addrs=call.given.required("g"), acl_file_full_path=call.given.text("p")
    )
    text = "update global white remote addresses to"
    await change(call, text, UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)


async def versions(call: Call) -> None:
    is_one = call.given.text("b") is not None
    if not is_one:
        call.print(table_row(call, _HEAD, _WIDTHS))
    for address in await addresses_of(call, masters_only=True):
        command = GET_BROKER_CLUSTER_ACL_INFO
        answer = await call.cluster.ask(address, command, NoFields())
        header = command.response.decode(answer.ext_fields)
        versions = (header.all_acl_file_version or "{}").encode()
        names = (header.cluster_name, header.broker_name, header.broker_addr)
        for path, version in read_body(dict[str, DataVersion], versions).items():
            changed = time_text(version.timestamp_ms)[: len("2026-11-22 10:00:00")]
            call.print(table_row(call, (*names, path, str(version.counter), changed), _WIDTHS))
    what = "broker" if is_one else "cluster"
    call.print(f"get {what}'s plain access config version success.\n")


async def show(call: Call) -> None:
    """Print all accounts, including their secrets."""
    for address in await addresses_of(call, masters_only=True):
        table = await call.cluster.ask_for(
            PlainAccessTable, address, GET_BROKER_CLUSTER_ACL_CONFIG, NoFields()
        )
        white = ", ".join(table.global_white_addrs)
        lines = ["", f"{'globalWhiteRemoteAddresses':<20}: [{white}]", "", "accounts:"]
        for account in table.plain_access_configs:
            lines += [f"  {name:<18}: {value}" for name, value in _members(account)]
            lines.append("")
        call.print("".join(f"{call.form.shown(line)}\n" for line in lines))


def _members(account: PlainAccessConfig) -> list[tuple[str, str]]:
    return [
        ("accessKey", account.access_key or ""),
        ("secretKey", account.secret_key or ""),
        ("whiteRemoteAddress", account.white_remote_address or ""),
        ("admin", flag_text(account.admin)),
        ("defaultTopicPerm", account.default_topic_perm or ""),
        ("defaultGroupPerm", account.default_group_perm or ""),
        ("topicPerms", list_text(account.topic_perms, "")),
        ("groupPerms", list_text(account.group_perms, "")),
    ]


def list_text(values: Sequence[str] | None, absent: str) -> str:
    """Return texts as Java prints a list."""
    return absent if values is None else f"[{', '.join(values)}]"


def _account_text(header: CreateAccessConfigRequest) -> str:
    """Return an account without its secret. RocketMQ prints the number of a Java object."""

    def quoted(text: str | None) -> str:
        return NULL if text is None else f"'{text}'"

    def listed(text: str | None) -> str:
        return list_text(None if text is None else text.split(","), NULL)

    return (
        f"PlainAccessConfig{{accessKey={quoted(header.access_key)}, "
        f"whiteRemoteAddress={quoted(header.white_remote_address)}, "
        f"admin={flag_text(header.admin)}, "
        f"defaultTopicPerm={quoted(header.default_topic_perm)}, "
        f"defaultGroupPerm={quoted(header.default_group_perm)}, "
        f"topicPerms={listed(header.topic_perms)}, groupPerms={listed(header.group_perms)}}}"
    )


def table_row(call: Call, cells: Sequence[str], widths: Sequence[int]) -> str:
    return columns(map(call.form.shown, cells), widths) + "\n"
