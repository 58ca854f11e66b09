"""Reads ``conf/plain_acl.yml`` and the files of ``conf/acl``, again when they change.

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

If one file is damaged, all previous rules stay in force; at the start, that is an error. If two
files have the same account, the first one counts: those of ``conf/acl`` in the order of their
names, then ``plain_acl.yml``. RocketMQ's requests to change the files are refused. Source:
``PlainPermissionManager``.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from rocketlens.broker.access.addresses import AddressPattern, parse_pattern
from rocketlens.broker.access.plain_rules import Account, PlainRules, account_of
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.net.pace import in_thread
from rocketlens.wire.bodies.auth import PlainAccessConfig, PlainAccessTable
from rocketlens.wire.bodies.tables import DataVersion
from rocketlens.wire.declare import TEXT, fields_of, read_member

MAX_ACL_FILE_BYTES: Final = 1024 * 1024
"""Bytes of a file of accounts: some 5,000 accounts. RocketMQ: no limit."""
_log: Final = logging.getLogger("rocketlens.broker")
FILES_READ: Final = 100
"""Maximum number of files in ``conf/acl``. RocketMQ: no limit."""
_SUFFIXES: Final = (".yml", ".yaml")
_DEFAULT: Final = "plain_acl.yml"
_TOOLS: Final = "tools.yml"

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and modification time of each file: a difference means a change."""


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """The content of the files when they were read."""

    rules: PlainRules
    configs: tuple[PlainAccessConfig, ...] = field(default=(), repr=False)
    white_addresses: tuple[str, ...] = ()
    versions: Mapping[str, DataVersion] = field(default_factory=dict)
    """By path."""
    warnings: tuple[str, ...] = ()


class PlainAcl:
    """The accounts of a broker. Belongs to its event loop; files are read in threads.

    ``problem`` is the error in the files, while older rules are in force.
    """

    def __init__(self, home: Path) -> None:
        """:raises BadInput: if a file is invalid.
        :raises OSError: if a file cannot be read.
        """
        self._conf: Final = home / "conf"
        self.default_file: Final = self._conf / _DEFAULT
        self._reload: asyncio.Task[None] | None = None
        self.problem = ""
        self._stamp: Stamp = _stamp_of(self._conf)
        self.loaded: LoadedFiles = load_files(self._conf)
        self._warn()

    def watch(self) -> None:
        """Read the files again if they changed, in a task."""
        if self._reload is None or self._reload.done():
            self._reload = asyncio.get_running_loop().create_task(self.read_again())

    def close(self) -> None:
        if self._reload is not None:
            self._reload.cancel()

    async def read_again(self) -> None:
        """Read the files if they changed; if they are damaged, the previous rules stay in force."""
        stamp = await in_thread(lambda: _stamp_of(self._conf))
        if stamp == self._stamp:
            return
        # Damaged files are not read again until they change.
        self._stamp = stamp
        try:
            self.loaded = await in_thread(lambda: load_files(self._conf))
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

    def table(self) -> PlainAccessTable:
        """Return all accounts, with their secrets."""
        return PlainAccessTable(
            global_white_addrs=self.loaded.white_addresses, plain_access_configs=self.loaded.configs
        )


def _paths(conf: Path) -> list[Path]:
    directory = conf / "acl"
    paths = sorted(
        path
        for path in (directory.rglob("*") if directory.is_dir() else ())
        if path.suffix in _SUFFIXES and path.is_file() and path.name != _TOOLS
    )
    if len(paths) > FILES_READ:
        raise BadInput(f"{directory} has over {FILES_READ} files")
    return [*paths, conf / _DEFAULT]


def _stamp_of(conf: Path) -> Stamp:
    stamps = []
    for path in _paths(conf):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        stamps.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def load_files(conf: Path) -> LoadedFiles:
    """:raises BadInput: if a file is invalid.
    :raises OSError: if a file cannot be read.
    """
    accounts: dict[str, Account] = {}
    configs: list[PlainAccessConfig] = []
    white: list[str] = []
    patterns: list[AddressPattern] = []
    versions: dict[str, DataVersion] = {}
    warnings: list[str] = []
    for path in _paths(conf):
        value, problems = _read(path)
        warnings += problems
        try:
            addresses = _texts(value.get("globalWhiteRemoteAddresses"), "an address")
            patterns += filter(None, map(parse_pattern, addresses))
            white += addresses
            for config in _configs(value.get("accounts")):
                account = account_of(config)
                if account.access_key in accounts:
                    warnings.append(f"{path}: accessKey {account.access_key} is a duplicate")
                    continue
                accounts[account.access_key] = account
                configs.append(config)
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None
        if value:
            listed = value.get("dataVersion")
            version = listed[0] if isinstance(listed, list) and listed else None
            versions[str(path)] = read_member(DataVersion, version) or DataVersion()
    return LoadedFiles(
        PlainRules(accounts, tuple(patterns)),
        tuple(configs),
        tuple(white),
        versions,
        tuple(warnings),
    )


def _read(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the members of a file, and warnings; no members if it is empty or missing.

    :raises BadInput: if it is invalid, or other users can write to it.
    """
    warnings = []
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_ACL_FILE_BYTES + 1)
    except FileNotFoundError:
        return {}, []
    if mode & stat.S_IWOTH:
        raise BadInput(f"{path} is world-writable and is not used: chmod o-w {path}")
    if stat.S_IMODE(mode) & 0o077 and content.strip():
        warnings.append(f"{path} has secret keys that other users can read: chmod 600 {path}")
    if len(content) > MAX_ACL_FILE_BYTES:
        raise BadInput(f"{path} has over {MAX_ACL_FILE_BYTES} bytes")
    try:
        # Not the faster loader in C: it would block the event loop, although it runs in a thread.
        value = yaml.safe_load(content.decode("utf-8-sig"))
    except yaml.MarkedYAMLError as error:
        # Not the error's text: it quotes the line, which can contain a secret.
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise BadInput(f"{path}: line {line} is not valid YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid YAML ({type(error).__name__})") from None
    if value is None:
        return {}, []
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"{path}: expected names and values")
    return value, warnings


def _configs(value: Any) -> list[PlainAccessConfig]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput("accounts is not a list")
    return [_config_of(each, number) for number, each in enumerate(value, 1)]


def _config_of(value: Any, number: int) -> PlainAccessConfig:
    if not isinstance(value, dict):
        raise BadInput(f"account {number}: expected names and values")
    values: dict[str, Any] = {}
    for row in fields_of(PlainAccessConfig):
        each, where = value.get(row.wire_name), f"{row.wire_name} of account {number}"
        if row.shape is TEXT:
            values[row.name] = _text(each, where)
        elif each is not None and row.name != "admin":
            values[row.name] = tuple(_texts(each, where))
    admin = (_text(value.get("admin"), f"admin of account {number}") or "false").lower()
    if admin not in {"true", "false"}:
        raise BadInput(f"admin of account {number} is neither true nor false")
    return PlainAccessConfig(**{**values, "admin": admin == "true"})


def _text(value: Any, name: str) -> str | None:
    """Return a scalar as RocketMQ reads it: ``12345678`` is a text, too."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise BadInput(f"{name} is not a string: put it in quotes")


def _texts(value: Any, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"{name} is not a list")
    return [text for each in value if (text := _text(each, name)) is not None]
