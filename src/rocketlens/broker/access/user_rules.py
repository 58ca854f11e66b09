"""Users and policies of RocketMQ 5: decides requests, and changes users and policies.

Their files are ``config/authUsers.json`` and ``config/authAcls.json``; RocketMQ uses RocksDB.
Members have the names of the wire. Passwords are in clear text, because signatures need them: only
the broker's user can read the files. An invalid entry is left out, so it allows nothing.

Tables belong to the event loop. Decisions are made there, or in a thread if a body is large; they
read two values that are never changed in place. Remarks are RocketMQ's. Source:
``DefaultAuthenticationHandler``, ``AuthenticationMetadataManagerImpl``,
``UserAuthorizationHandler``, ``AuthMigrator``.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from rocketlens.broker.access.addresses import parse_address
from rocketlens.broker.access.needs import listing_needs, needs_of
from rocketlens.broker.access.policy import (
    USER,
    Acl,
    Action,
    Decision,
    Need,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    acl_of,
    named,
)
from rocketlens.broker.access_config import AuthConfig, codes_in
from rocketlens.broker.tables.entry_table import EntryTable
from rocketlens.broker.tables.table_saver import Table
from rocketlens.errors import BadInput, CommandBodyError, StoreBusy
from rocketlens.model.text.escape import printable
from rocketlens.net.channel import Response
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire import acl
from rocketlens.wire.bodies.auth import (
    AclInfo,
    PlainAccessConfig,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.declare import members_of, read_member

MAX_USERS: Final = 10_000
"""Users, and subjects with policies, of a broker. RocketMQ: no limit."""
_log: Final = logging.getLogger("rocketlens.broker")
_MAX_SHOWN: Final = 100


class ProvenUser(str):
    """The name of a user whose signature was verified when the request was admitted.

    Requests from a connection never have this type.
    """

    __slots__ = ()


class Refused(BadInput):
    """A change of users or policies is invalid; answered with code 16."""

    code = ResponseCode.NO_PERMISSION


class UserTable(EntryTable[User]):
    """The users, by name."""

    FILE = "authUsers.json"
    MEMBER = "users"

    def decode_entry(self, value: Any) -> User | None:
        info = read_member(UserInfo, value)
        if info is None or not info.username or not info.password:
            return None
        user_type, status = named(UserType, info.user_type), named(UserStatus, info.user_status)
        if user_type is None or status is None:
            return None
        return User(info.username, info.password, user_type, status)

    def encode_entry(self, entry: User) -> dict[str, Any]:
        return members_of(entry.info())


class AclTable(EntryTable[Acl]):
    """Policies by subject, such as ``User:alice``."""

    FILE = "authAcls.json"
    MEMBER = "acls"

    def decode_entry(self, value: Any) -> Acl | None:
        """Parse the policies of a subject; return None if any entry is invalid."""
        info = read_member(AclInfo, value)
        if info is None or not (info.subject or "").startswith(USER):
            return None
        try:
            made = acl_of(info, info.subject or "")
        except BadInput:
            return None
        # If parsing lost a part, the rest could allow more than the original.
        return made if made.info() == info else None

    def encode_entry(self, entry: Acl) -> dict[str, Any]:
        return members_of(entry.info())


class Users:
    """The users of a broker and their policies."""

    def __init__(
        self,
        config: AuthConfig,
        cluster: str,
        layout: StoreLayout,
        disk: Disk,
        clock: Callable[[], int],
        *,
        save: Callable[[Table], asyncio.Future[bool]],
    ) -> None:
        """:raises ConfigError: if a table exceeds the bound for reading.
        :raises OSError: if a table cannot be read or written.
        """
        self._cluster: Final = cluster
        self._authorizes: Final = config.authorizationEnabled
        self._needs_no_user: Final = codes_in(config.authenticationWhitelist)
        self._needs_no_policy: Final = codes_in(config.authorizationWhitelist)
        self.users: Final = UserTable(layout, disk, clock)
        self.acls: Final = AclTable(layout, disk, clock)
        self._save: Final = save
        for name, password in config.first_users():
            if name not in self.users.entries:
                self.users.put_all({name: User(name, password, UserType.SUPER)})
        if self.users.is_changed:
            self.users.save()

    # Decisions.

    def decide(self, command: RemotingCommand, host: str) -> Response | None:
        return _refusal(self._problem(command, host))

    def _problem(self, command: RemotingCommand, host: str) -> str | None:
        username = command.ext_fields.get(acl.ACCESS_KEY, "")
        user = self.users.entries.get(username)
        if command.code not in self._needs_no_user:
            if not username:
                return "username cannot be null."
            if user is None:
                return f"User:{username[:_MAX_SHOWN]} is not found."
            if user.status is UserStatus.DISABLE:
                return f"User:{username} is disabled."
            if not acl.verify(command.ext_fields, command.body, user.password):
                return "check signature failed."
        return self._policy_problem(command, self._user_of(command), host)

    def _user_of(self, command: RemotingCommand) -> User | None:
        """Return the user of an admitted request; None if no signature proves it."""
        name = command.ext_fields.get(acl.ACCESS_KEY, "")
        user = self.users.entries.get(name)
        if (
            user is None
            or command.code not in self._needs_no_user
            or not self._authorizes
            or isinstance(name, ProvenUser)
        ):
            return user
        is_signed = acl.verify(command.ext_fields, command.body, user.password)
        return user if is_signed and user.status is UserStatus.ENABLE else None

    def proven_user(self, command: RemotingCommand) -> ProvenUser | None:
        """Return the name of the user of an admitted request; None if no signature proves it."""
        user = self._user_of(command)
        return None if user is None else ProvenUser(user.username)

    def _policy_problem(self, command: RemotingCommand, user: User | None, host: str) -> str | None:
        if not self._authorizes or command.code in self._needs_no_policy:
            return None
        if user is not None and user.user_type is UserType.SUPER:
            return None
        try:
            needs = needs_of(command, self._cluster)
        except CommandBodyError:
            return "parse authorization context error."
        return self._unmet(needs, user, host)

    def secret_for(self, command: RemotingCommand, host: str) -> str | None:
        user = self.users.entries.get(command.ext_fields.get(acl.ACCESS_KEY, ""))
        if (
            user is None
            or user.status is UserStatus.DISABLE
            or command.code in self._needs_no_user
            or self._policy_problem(command, user, host) is not None
        ):
            return None
        return user.password or None

    def may_see(self, command: RemotingCommand, host: str, topic: str) -> bool:
        return any(self.refuse_need(command, host, need) is None for need in listing_needs(topic))

    def refuse_need(self, command: RemotingCommand, host: str, need: Need) -> Response | None:
        user = self._user_of(command)
        is_super = user is not None and user.user_type is UserType.SUPER
        if is_super or not self._authorizes or command.code in self._needs_no_policy:
            return None
        return _refusal(self._unmet([need], user, host))

    def _unmet(self, needs: Sequence[Need], user: User | None, host: str) -> str | None:
        if not needs:
            return None
        if user is None:
            return "Authorization failed. Please verify your access rights and try again."
        subject = USER + user.username
        policies = self.acls.entries.get(subject)
        address = parse_address(host)
        for need in needs:
            decision = None if policies is None else policies.decision(need, address)
            if decision is not Decision.ALLOW:
                why = "no matched policies." if decision is None else "the decision is deny."
                resource = need.resource.key[:_MAX_SHOWN]
                return f"{subject} has no permission to access {resource} from {host}, {why}"
        return None

    def is_of_super(self, command: RemotingCommand) -> bool:
        user = self.users.entries.get(command.ext_fields.get(acl.ACCESS_KEY, ""))
        return (
            user is not None
            and user.user_type is UserType.SUPER
            and user.status is UserStatus.ENABLE
            and acl.verify(command.ext_fields, command.body, user.password)
        )

    # Changes. Each returns after it is written.

    async def create_user(self, username: str, user: UserInfo) -> None:
        """:raises Refused: if the user exists, or the password is missing."""
        if not username.strip():
            raise Refused("username can not be blank")
        if not (user.password or "").strip():
            raise Refused("password can not be blank")
        if username in self.users.entries:
            raise Refused("The user is existed")
        _check_room(self.users.entries)
        made = User(
            username,
            user.password or "",
            named(UserType, user.user_type) or UserType.NORMAL,
            named(UserStatus, user.user_status) or UserStatus.ENABLE,
        )
        self.users.put_all({username: made})
        await self._save_all(self.users)

    async def update_user(self, username: str, user: UserInfo) -> None:
        """:raises Refused: if the user does not exist."""
        old = self.users.entries.get(username)
        if old is None:
            raise Refused("The user is not exist")
        password = user.password or ""
        changed = replace(
            old,
            password=password if password.strip() else old.password,
            user_type=named(UserType, user.user_type) or old.user_type,
            status=named(UserStatus, user.user_status) or old.status,
        )
        self.users.put_all({username: changed})
        await self._save_all(self.users)

    async def delete_user(self, username: str) -> None:
        """:raises Refused: if the name is blank."""
        if not username.strip():
            raise Refused("username can not be blank")
        self.users.remove(username)
        self.acls.remove(USER + username)
        await self._save_all(self.users, self.acls)

    async def put_acl(self, subject: str, policies: AclInfo) -> None:
        """:raises Refused: if the subject does not exist, or an entry is invalid."""
        try:
            made = acl_of(policies, subject)
        except BadInput as error:
            raise Refused(str(error)) from None
        if subject.removeprefix(USER) not in self.users.entries:
            raise Refused(f"The subject of {subject[:_MAX_SHOWN]} is not exist.")
        old = self.acls.entries.get(subject)
        if old is None:
            _check_room(self.acls.entries)
        self.acls.put_all({subject: made if old is None else old.updated(made)})
        await self._save_all(self.acls)

    async def delete_acl(
        self, subject: str | None, policy_type: str | None, resource: str | None
    ) -> None:
        """Remove the policies of a subject, or their entry of one resource.

        :raises Refused: if the subject does not exist, or has no policies.
        """
        if subject is None:
            raise Refused("The subject is null.")
        if subject.removeprefix(USER) not in self.users.entries:
            raise Refused("The subject is not exist.")
        old = self.acls.entries.get(subject)
        if old is None:
            raise Refused("The acl is not exist.")
        parsed = Resource.parse(resource)
        if resource and resource.strip() and parsed is None:
            # RocketMQ removes all policies then.
            raise Refused("The resource is null.")
        kept: Acl | None = None
        if parsed is not None:
            kept = old.without(named(PolicyType, policy_type) or PolicyType.CUSTOM, parsed)
        if kept is None or not kept.policies:
            self.acls.remove(subject)
        else:
            self.acls.put_all({subject: kept})
        await self._save_all(self.acls)

    async def _save_all(self, *tables: UserTable | AclTable) -> None:
        written = await asyncio.gather(*map(self._save, tables))
        if not all(written):
            raise StoreBusy(
                "the change is in force, but could not be written yet: it will be retried"
            )

    def migrate(self, accounts: Iterable[PlainAccessConfig]) -> None:
        """Create and save users from accounts of plain_acl.yml that have none yet.

        White lists are not migrated: policies cannot exempt an address from signatures.

        :raises OSError: if the users cannot be written.
        """
        made = []
        for account in accounts:
            name, secret = account.access_key or "", account.secret_key or ""
            if name in self.users.entries:
                continue
            user_type = UserType.SUPER if account.admin else UserType.NORMAL
            self.users.put_all({name: User(name, secret, user_type)})
            policies = _policies_of(account)
            if policies:
                subject = USER + name
                self.acls.put_all({subject: acl_of(AclInfo(policies=policies), subject)})
            if (account.white_remote_address or "").strip():
                _log.warning("the white list of account %s is not migrated", printable(name))
            made.append(name)
        if made:
            self.users.save()
            self.acls.save()
            _log.info("created users from %d accounts", len(made))


def _refusal(problem: str | None) -> Response | None:
    return None if problem is None else Response(ResponseCode.NO_PERMISSION, remark=problem)


def _check_room(entries: dict[str, object] | dict[str, User] | dict[str, Acl]) -> None:
    if len(entries) >= MAX_USERS:
        raise Refused(f"{MAX_USERS} are allowed, and all are in use")


def _policies_of(account: PlainAccessConfig) -> tuple[PolicyInfo, ...]:
    custom = [
        _entry_of(f"{kind}:{name.strip()}", permission)
        for kind, perms in (("Topic", account.topic_perms), ("Group", account.group_perms))
        for name, _, permission in (each.partition("=") for each in perms or ())
    ]
    default = [
        _entry_of(f"{kind}:*", permission)
        for kind, permission in (
            ("Topic", account.default_topic_perm),
            ("Group", account.default_group_perm),
        )
        if permission and permission.strip()
    ]
    pairs = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
    return tuple(
        PolicyInfo(policy_type=each.value, entries=tuple(entries))
        for each, entries in pairs
        if entries
    )


def _entry_of(resource: str, permission: str) -> PolicyEntryInfo:
    names = permission.strip().split("|")
    actions = tuple(each.value for each in (Action.PUB, Action.SUB) if each.value.upper() in names)
    # RocketMQ 4 treats an unknown permission as DENY.

    is_known = len(actions) == len(names)
    return PolicyEntryInfo(
        resource=resource,
        actions=actions if is_known else (Action.ALL.value,),
        decision=(Decision.ALLOW if is_known else Decision.DENY).value,
    )
