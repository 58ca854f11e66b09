"""``conf/plain_acl.yml`` and the files of ``conf/acl``: read, watched, and changed by requests.

::

    globalWhiteRemoteAddresses:
    - 10.10.103.*
    accounts:
    - accessKey: orders-app
      secretKey: "12345678"
      whiteRemoteAddress:
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms:
      - orders=PUB|SUB
      groupPerms:
      - orders-group=SUB

All files count or none: as long as one is damaged, the rules of before stay in force. At the start
that is an error. An account that two files have is the one of the first: those of ``conf/acl`` in
the order of their names, then ``plain_acl.yml``. A change writes the file anew, without its
comments, as RocketMQ does. Source: ``PlainPermissionManager``.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from rocketlens.broker.access.addresses import AddressPattern, parse_pattern
from rocketlens.broker.access.plain_rules import (
    Account,
    PlainRules,
    account_of,
    check_permissions,
)
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.net.channel import Response
from rocketlens.net.pace import in_thread
from rocketlens.store.disk import Disk
from rocketlens.wire.bodies.auth import PlainAccessConfig, PlainAccessTable
from rocketlens.wire.bodies.topic import DataVersion
from rocketlens.wire.command import RemotingCommand

MAX_ACL_FILE_BYTES: Final = 1024 * 1024
"""Largest file of accounts, in bytes: some 5,000 accounts. RocketMQ: any."""
_log: Final = logging.getLogger("rocketlens.broker")
FILES_READ: Final = 100
"""Files in ``conf/acl`` at most. RocketMQ: any number."""
_SUFFIXES: Final = (".yml", ".yaml")
_TOOLS: Final = "tools.yml"
_TEXTS: Final = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "whiteRemoteAddress": "white_remote_address",
    "defaultTopicPerm": "default_topic_perm",
    "defaultGroupPerm": "default_group_perm",
}
_LISTS: Final = {"topicPerms": "topic_perms", "groupPerms": "group_perms"}

Stamp = tuple[tuple[str, int, int, int], ...]
"""By what it is seen that a file changed: path, inode, size and modification time of each."""


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """The content of the files when they were read."""

    rules: PlainRules
    configs: tuple[PlainAccessConfig, ...] = field(default=(), repr=False)
    white_addresses: tuple[str, ...] = ()
    versions: Mapping[str, DataVersion] = field(default_factory=dict)
    """By path."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The path of the file of each access key."""
    warnings: tuple[str, ...] = ()


class PlainAcl:
    """The accounts of a broker. Belongs to its event loop; files are read and written in threads.

    ``problem`` is the error in the files; older rules are in force until it is mended.
    """

    def __init__(self, home: Path, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the files now; none needs to be there.

        :raises BadInput: when one cannot be understood.
        :raises OSError: when one cannot be read.
        """
        self._conf: Final = home / "conf"
        self.default_file: Final = self._conf / "plain_acl.yml"
        self._disk: Final = disk
        self._clock: Final = clock
        self._lock: Final = asyncio.Lock()
        self._reload: asyncio.Task[None] | None = None
        self.problem = ""
        self._stamp: Stamp = self._stamp_now()
        self.loaded: LoadedFiles = self._load()
        self._warn()

    def decide(self, command: RemotingCommand, host: str) -> Response | None:
        """Return the refusal of a request; None if it is let through. For any thread."""
        return self.loaded.rules.decide(command, host)

    def secret_for(self, command: RemotingCommand, host: str) -> str | None:
        """Return the secret that a request must be signed with: see
        `rocketlens.broker.access.guard.AccessRules`.
        """
        return self.loaded.rules.secret_for(command, host)

    def decide_reading(self, command: RemotingCommand, host: str, topic: str) -> Response | None:
        """Return the refusal of a request that was let through, and reads a message of a topic."""
        return self.loaded.rules.decide_reading(command, host, topic)

    def decide_writing(self, command: RemotingCommand, host: str, topic: str) -> Response | None:
        """Return the refusal of a request that was let through, and writes to a topic: see
        `rocketlens.broker.access.guard.AccessRules`.
        """
        return self.loaded.rules.decide_writing(command, host, topic)

    def may_see(self, command: RemotingCommand, host: str, topic: str) -> bool:
        """Return whether a topic, or the group of a retry topic, is in a list that is asked for."""
        return self.loaded.rules.may_see(command, host, topic)

    def watch(self) -> None:
        """Read the files again if they changed, a moment later."""
        if self._reload is None or self._reload.done():
            self._reload = asyncio.get_running_loop().create_task(self._read_again())

    def close(self) -> None:
        """Stop reading."""
        if self._reload is not None:
            self._reload.cancel()

    async def _read_again(self) -> None:
        async with self._lock:
            stamp = await in_thread(self._stamp_now)
            if stamp != self._stamp:
                # Also if they are damaged: they are read again when they change again.
                self._stamp = stamp
                await self._take()

    async def _take(self) -> None:
        try:
            self.loaded = await in_thread(self._load)
        except (BadInput, OSError) as error:
            problem = printable(f"{error}")
            self.problem = f"older access rules are in force: {problem}"
            _log.error("%s", self.problem)
        else:
            if self.problem:
                _log.info("the access rules are those of %s again", self._conf)
            self.problem = ""
            self._warn()

    def _warn(self) -> None:
        for warning in self.loaded.warnings:
            _log.warning("%s", printable(warning))

    # What requests change.

    def table(self) -> PlainAccessTable:
        """Return all accounts, with their secrets."""
        return PlainAccessTable(
            global_white_addrs=self.loaded.white_addresses,
            plain_access_configs=self.loaded.configs,
        )

    async def update(self, config: PlainAccessConfig) -> None:
        """Make an account, or change the members that are given.

        :raises BadInput: when it cannot be one.
        :raises OSError: when it cannot be written: nothing is changed then.
        """
        account_of(config)
        check_permissions(config.topic_perms)
        check_permissions(config.group_perms)
        members = _members_of(config)

        def change(accounts: list[Any]) -> None:
            same = (each for each in accounts if _key_of(each) == config.access_key)
            old: dict[str, Any] = next(same, {})
            accounts[:] = [each for each in accounts if each is not old]
            accounts.append({**old, **members})

        path = self.loaded.files.get(config.access_key or "", str(self.default_file))
        await self._change(path, "accounts", change)

    async def delete(self, access_key: str) -> bool:
        """Remove an account; False if there is none.

        :raises OSError: when that cannot be written.
        """
        path = self.loaded.files.get(access_key)
        if path is None:
            return False

        def change(accounts: list[Any]) -> None:
            accounts[:] = [each for each in accounts if _key_of(each) != access_key]

        await self._change(path, "accounts", change)
        return True

    async def set_white_addresses(self, addresses: list[str], path: str | None) -> bool:
        """Replace the addresses that need no account; False if ``path`` is not one of the files.

        :raises BadInput: when a pattern cannot be read.
        :raises OSError: when that cannot be written.
        """
        path = path or str(self.default_file)
        if path not in (*self.loaded.versions, str(self.default_file)):
            return False
        for each in addresses:
            parse_pattern(each)

        def change(old: list[Any]) -> None:
            old[:] = addresses

        await self._change(path, "globalWhiteRemoteAddresses", change)
        return True

    async def _change(self, path: str, member: str, change: Callable[[list[Any]], None]) -> None:
        async with self._lock:
            await in_thread(lambda: self._write(Path(path), member, change))
            self._stamp = await in_thread(self._stamp_now)
            await self._take()
            if self.problem:
                raise BadInput(f"it is written, but {self.problem}")

    def _write(self, path: Path, member: str, change: Callable[[list[Any]], None]) -> None:
        value = _read(path).value
        members = value.get(member)
        members = list(members) if isinstance(members, list) else []
        change(members)
        old = _version_of(value.get("dataVersion"))
        version = {"counter": old.counter + 1, "timestamp": self._clock()}
        changed = {**value, member: members, "dataVersion": [version]}
        text = yaml.safe_dump(
            changed, default_flow_style=False, sort_keys=False, allow_unicode=True
        )
        content = text.encode("utf-8")
        if len(content) > MAX_ACL_FILE_BYTES:
            raise BadInput(f"{path} would have over {MAX_ACL_FILE_BYTES} bytes")
        self._disk.write_durably(path, content)

    # What runs in a thread, or before the broker serves.

    def _paths(self) -> list[Path]:
        directory = self._conf / "acl"
        paths = sorted(
            path
            for path in (directory.rglob("*") if directory.is_dir() else ())
            if path.suffix in _SUFFIXES and path.is_file() and path.name != _TOOLS
        )
        if len(paths) > FILES_READ:
            raise BadInput(f"{directory} has over {FILES_READ} files")
        return [*paths, self.default_file]

    def _stamp_now(self) -> Stamp:
        stamps = []
        for path in self._paths():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            stamps.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(stamps)

    def _load(self) -> LoadedFiles:
        accounts: dict[str, Account] = {}
        configs: list[PlainAccessConfig] = []
        white: list[str] = []
        patterns: list[AddressPattern] = []
        versions: dict[str, DataVersion] = {}
        files: dict[str, str] = {}
        warnings: list[str] = []
        for path in self._paths():
            file = _read(path)
            warnings += file.warnings
            try:
                addresses = _texts(file.value.get("globalWhiteRemoteAddresses"), "an address")
                patterns += filter(None, map(parse_pattern, addresses))
                white += addresses
                for config in _configs(file.value.get("accounts")):
                    account = account_of(config)
                    if account.access_key in accounts:
                        warnings.append(f"{path}: accessKey {account.access_key} is there before")
                        continue
                    accounts[account.access_key] = account
                    files[account.access_key] = str(path)
                    configs.append(config)
            except BadInput as error:
                raise BadInput(f"{path}: {error}") from None
            if file.value:
                versions[str(path)] = _version_of(file.value.get("dataVersion"))
        return LoadedFiles(
            PlainRules(accounts, tuple(patterns)),
            tuple(configs),
            tuple(white),
            versions,
            files,
            tuple(warnings),
        )


class _File(NamedTuple):
    value: dict[str, Any]
    warnings: tuple[str, ...]


def load_accounts(home: Path, disk: Disk) -> tuple[PlainAccessConfig, ...]:
    """Return the accounts of the files, for RocketMQ 5's access control to take over.

    Raises what :class:`PlainAcl` does.
    """
    return PlainAcl(home, disk, lambda: 0).loaded.configs


def _read(path: Path) -> _File:
    """Return the members of a file, none if it is empty or not there.

    :raises BadInput: when it is not YAML of that form, or other users can write to it.
    """
    warnings = []
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_ACL_FILE_BYTES + 1)
    except FileNotFoundError:
        return _File({}, ())
    if mode & stat.S_IWOTH:
        raise BadInput(f"{path} is world-writable and is not used: chmod o-w {path}")
    if stat.S_IMODE(mode) & 0o077 and content.strip():
        warnings.append(f"{path} holds secret keys that others may read: chmod 600 {path}")
    if len(content) > MAX_ACL_FILE_BYTES:
        raise BadInput(f"{path} has over {MAX_ACL_FILE_BYTES} bytes")
    try:
        # Not the faster one in C: it would hold up the event loop from within its thread.
        value = yaml.safe_load(content.decode("utf-8-sig"))
    except yaml.MarkedYAMLError as error:
        # Not its text: it quotes the line, which may hold a secret.
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise BadInput(f"{path}: line {line} is no YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is no YAML ({type(error).__name__})") from None
    if value is None:
        return _File({}, ())
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"{path}: names and values are expected")
    return _File(value, tuple(warnings))


def _configs(value: Any) -> list[PlainAccessConfig]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput("accounts is not a list")
    return [_config_of(each, number) for number, each in enumerate(value, 1)]


def _config_of(value: Any, number: int) -> PlainAccessConfig:
    if not isinstance(value, dict):
        raise BadInput(f"account {number} has no names and values")
    texts: dict[str, Any] = {
        attribute: _text(value.get(name), f"{name} of account {number}")
        for name, attribute in _TEXTS.items()
    }
    lists: dict[str, Any] = {
        attribute: tuple(_texts(value[name], f"{name} of account {number}"))
        for name, attribute in _LISTS.items()
        if value.get(name) is not None
    }
    admin = (_text(value.get("admin"), f"admin of account {number}") or "false").lower()
    if admin not in {"true", "false"}:
        raise BadInput(f"admin of account {number} is neither true nor false")
    return PlainAccessConfig(admin=admin == "true", **texts, **lists)


def _text(value: Any, name: str) -> str | None:
    """Return a scalar as RocketMQ reads it: ``12345678`` is a text, too."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise BadInput(f"{name} is not a text: put it in quotes")


def _texts(value: Any, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"{name} is not a list")
    return [text for each in value if (text := _text(each, name)) is not None]


def _key_of(account: Any) -> str | None:
    return _text(account.get("accessKey"), "accessKey") if isinstance(account, dict) else None


def _version_of(value: Any) -> DataVersion:
    first = value[0] if isinstance(value, list) and value else None
    numbers = first if isinstance(first, dict) else {}
    counter, timestamp = numbers.get("counter"), numbers.get("timestamp")
    return DataVersion(
        counter=counter if type(counter) is int else 0,
        timestamp_ms=timestamp if type(timestamp) is int else 0,
    )


def _members_of(config: PlainAccessConfig) -> dict[str, Any]:
    """Return the members that a request changes: empty texts change nothing, but an address."""
    members: dict[str, Any] = {"accessKey": config.access_key}
    if config.secret_key:
        members["secretKey"] = config.secret_key
    if config.white_remote_address is not None:
        members["whiteRemoteAddress"] = config.white_remote_address
    members["admin"] = config.admin
    if config.default_topic_perm:
        members["defaultTopicPerm"] = config.default_topic_perm
    if config.default_group_perm:
        members["defaultGroupPerm"] = config.default_group_perm
    if config.topic_perms is not None:
        members["topicPerms"] = list(config.topic_perms)
    if config.group_perms is not None:
        members["groupPerms"] = list(config.group_perms)
    return members
