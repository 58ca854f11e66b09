"""Named contexts: the user's configuration file of clusters, stores and archives.

::

    default_context = "prod"                 # optional

    [contexts.prod]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    namespace = "shop"
    access_key = "reader"
    secret_key_file = "prod.secret"          # or secret_key_env = "PROD_SECRET", or secret_key
    ca = "prod-ca.pem"        # TLS; also tls, check_hostname, insecure, cert, cert_key
    read_only = true          # commands that send messages or change the cluster are refused

    [contexts.backup]
    store = "/backup/rocketmq/store"

    [contexts.lake]
    archive = "s3://lake/rocketmq"           # or a directory

The file is ``$ROCKETLENS_CONFIG``, or else ``rocketlens/config.toml`` in ``$XDG_CONFIG_HOME`` or
``~/.config``. Paths in it are relative to its directory. It must be a regular file, owned by the
user or root, and not world-writable. Changes preserve comments and layout.

Secrets and the paths of their files are never printed. Names in the file (contexts, keys,
variables) are not printed either, unless the user typed a similar one: a secret may be written in
the wrong place.
"""

import fcntl
import os
import re
import stat
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.text.counted import counted
from rocketlens.model.text.nearest import suggestion
from rocketlens.net.secret_file import open_regular, read_secret_file
from rocketlens.terminal.command_parser import CommandParser
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

CONTEXT_VARIABLE: Final = "ROCKETLENS_CONTEXT"
STORE_VARIABLE: Final = "ROCKETLENS_STORE"
ACCESS_KEY_VARIABLE: Final = "ROCKETLENS_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETLENS_SECRET_KEY"  # noqa: S105 - a variable's name

OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "context": (
        "NAME",
        f"a named context of the configuration file (default: ${CONTEXT_VARIABLE})",
    ),
    "namespace": ("NS", "prefix of topics and groups, as in RocketMQ's clients"),
    "access-key": ("KEY", f"the user, if brokers check access (default: ${ACCESS_KEY_VARIABLE})"),
    "secret-key-file": (
        "FILE",
        f"file with the secret key (default: the key itself in ${SECRET_KEY_VARIABLE})",
    ),
    "ca": ("FILE", "use TLS, and trust servers with a certificate of this authority (PEM)"),
    "cert": ("FILE", "our own certificate, if servers ask for one (PEM)"),
    "cert-key": ("FILE", "the private key of --cert, if it is in another file (PEM)"),
}
"""Options with a value: its placeholder, and the help."""
SWITCHES: Final[Mapping[str, str]] = {
    "tls": "use TLS",
    "check-hostname": "use TLS, and check the host of certificates (always so without --ca)",
    "insecure": "use TLS without checking certificates, as RocketMQ's own clients do",
}


def add_connection_options(parser: ArgumentParser, *, several_contexts: bool = False) -> None:
    """Add the connection options except ``--namesrv``; ``--context`` can be repeatable."""
    group = parser.add_argument_group("the connection to a cluster")
    actions = [
        group.add_argument(
            f"--{name}",
            metavar=metavar,
            help=purpose,
            action="append" if several_contexts and name == "context" else "store",
        )
        for name, (metavar, purpose) in OPTIONS.items()
    ]
    actions += [
        group.add_argument(f"--{name}", action="store_const", const=True, help=purpose)
        for name, purpose in SWITCHES.items()
    ]
    if isinstance(parser, CommandParser):
        parser.fold(actions, "connection options")


CONFIG_VARIABLE: Final = "ROCKETLENS_CONFIG"

_SOURCES: Final = ("store", "archive", "namesrv")
_PATHS: Final = ("store", "archive", "secret_key_file", "ca", "cert", "cert_key")
_SECRETS: Final = ("secret_key", "secret_key_file", "secret_key_env")
_SWITCHES: Final = ("tls", "check_hostname", "insecure", "read_only")
_LINE: Final = re.compile(r"at line \d+, column \d+")
_KINDS: Final = {str: "text in quotation marks", bool: "true or false", dict: "a table"}
DEFAULT: Final = "default_context"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")


class Context(NamedTuple):
    """A source and its credentials. None and "" mean that a setting is missing."""

    store: str | None = None
    """A store directory, instead of a cluster."""
    archive: str | None = None
    """An archive, instead of a cluster: a directory, or ``s3://BUCKET/PREFIX``."""
    namesrv: str | None = None
    """Name servers, separated by semicolons."""
    namespace: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    secret_key_file: str | None = None
    secret_key_env: str | None = None
    """The name of an environment variable."""
    tls: bool | None = None
    check_hostname: bool | None = None
    insecure: bool | None = None
    """TLS without checking certificates, as in RocketMQ's test mode."""
    ca: str | None = None
    """The certificate authority of the servers, PEM."""
    cert: str | None = None
    cert_key: str | None = None
    """The client's certificate and its key, PEM."""
    read_only: bool | None = None
    """Whether commands that change the cluster are refused."""

    def __repr__(self) -> str:
        return f"Context({', '.join(self.given)})"

    def over(self, other: "Context") -> "Context":
        """Return this context with missing settings from the other one.

        The kinds of sources count as one setting, and so do the kinds of secrets.
        """
        mine, others = self.given, other.given
        for names in (_SOURCES, _SECRETS):
            if any(name in mine for name in names):
                others = {name: value for name, value in others.items() if name not in names}
        return Context(**{**others, **mine})

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not missing, by name."""
        return {name: value for name, value in self._asdict().items() if value not in (None, "")}

    @property
    def names_source(self) -> bool:
        return any(getattr(self, name) is not None for name in _SOURCES)

    def secret(self) -> str | None:
        """Return the secret key, from the context, a file or the environment.

        :raises BadInput: if the file or variable is empty or cannot be read.
        """
        if self.secret_key_file is not None:
            return read_secret(Path(self.secret_key_file))
        if self.secret_key_env is not None:
            secret = os.environ.get(self.secret_key_env)
            if not secret:
                raise BadInput("secret_key_env: the variable that it names is not set")
            return secret
        return self.secret_key


_KINDS_OF_KEYS: Final = {name: bool if name in _SWITCHES else str for name in Context._fields}


def config_path() -> Path:
    given = os.environ.get(CONFIG_VARIABLE)
    if given:
        return Path(given)
    directory = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(directory) if directory.startswith("/") else Path.home() / ".config"
    return base / "rocketlens" / "config.toml"


def named_context(name: str) -> Context:
    """Return a context.

    :raises BadInput: if the file or the context does not exist or is invalid.
    """
    path = config_path()
    return _existing_context(path, _load(path), name)


def _existing_context(path: Path, config: Mapping[str, Any] | None, name: str) -> Context:
    if config is None:
        raise BadInput(f"--context needs the file {path}, which does not exist")
    return _read_context(path, config, name)


def all_contexts() -> tuple[str | None, dict[str, Context]]:
    """Return the name of the default context, and all contexts by name; empty without a file.

    :raises BadInput: if the file or a context is invalid.
    """
    path = config_path()
    config = _load(path)
    if config is None:
        return None, {}
    default = os.environ.get(CONTEXT_VARIABLE) or config.get(DEFAULT)
    return default, {name: _read_context(path, config, name) for name in config["contexts"]}


def default_context() -> Context:
    """Return the context to use if nothing else names a source; an empty one if there is none.

    :raises BadInput: as in `named_context`.
    """
    name = os.environ.get(CONTEXT_VARIABLE)
    if name:
        return named_context(name)
    path = config_path()
    config = _load(path)
    if config is None:
        if os.environ.get(CONFIG_VARIABLE):
            raise BadInput(f"{CONFIG_VARIABLE}: the file {path} does not exist")
        return Context()
    default = config.get(DEFAULT)
    return Context() if default is None else _read_context(path, config, default)


def read_secret(path: Path, where: str = "the secret key's file (secret_key_file)") -> str:
    """Return the secret in a file, and warn if other users can read it.

    :param where: The name of the file in errors.
    :raises BadInput: if the file is empty, too long or cannot be read.
    """
    return read_secret_file(path, where, on_opened=warn_of_readers)


def check_owner(file: BinaryIO, path: Path) -> None:
    """Check that other users cannot write a file that determines trusted servers.

    :raises BadInput: if it belongs to another user, or is world-writable.
    """
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return
    if status.st_uid not in {0, os.geteuid()}:
        raise BadInput(f"{path} belongs to another user (id {status.st_uid}) and is not used")
    if status.st_mode & stat.S_IWOTH:
        raise BadInput(f"{path} is world-writable and is not used: chmod o-w {path}")


def warn_of_readers(mode: int, path: Path) -> None:
    """Warn if other users can read a secret. It is used nevertheless: some setups need that."""
    if stat.S_IMODE(mode) & 0o077:
        note(f"{path} holds a secret key that others may read: chmod 600 {path}")


def _load(path: Path) -> dict[str, Any] | None:
    """Return the content of the file, or None if it does not exist.

    :raises BadInput: if it is not a valid file of contexts.
    """
    try:
        with open_regular(path, f"{path}") as file:
            check_owner(file, path)
            content = file.read(limits.MAX_CONTEXTS_BYTES + 1)
            mode = os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        return None
    config = _config_of(path, content)
    if any("secret_key" in values for values in config["contexts"].values()):
        warn_of_readers(mode, path)
    return config


def toml_of(path: Path, content: bytes) -> dict[str, Any]:
    """Parse a TOML file. Errors do not quote its content, which can have secrets.

    :raises BadInput: if it is too long, or not TOML.
    """
    import tomllib

    if len(content) > limits.MAX_CONTEXTS_BYTES:
        raise BadInput(
            f"{path} is not a configuration file: it has over {limits.MAX_CONTEXTS_BYTES} bytes"
        )
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # The rest of the error can quote the content.
        is_toml = isinstance(error, tomllib.TOMLDecodeError)
        line = _LINE.search(str(error)) if is_toml else None
        where = f" ({line[0]})" if line else ""
        raise BadInput(f"{path} is not {'TOML' if is_toml else 'UTF-8'}{where}") from None


def _config_of(path: Path, content: bytes) -> dict[str, Any]:
    """Parse and check a file of contexts.

    :raises BadInput: if it is not TOML, or not in the form above.
    """
    config = toml_of(path, content)
    _check_names(f"{path}", config, {DEFAULT: str, "contexts": dict})
    contexts = config.setdefault("contexts", {})
    for number, values in enumerate(contexts.values(), 1):
        if not isinstance(values, dict):
            raise BadInput(f"{path}: context number {number} must be a table: [contexts.NAME]")
    return config


def _read_context(path: Path, config: Mapping[str, Any], name: str) -> Context:
    """Return one context of a file, with absolute paths.

    :raises BadInput: if it is missing or invalid.
    """
    contexts = config["contexts"]
    if name not in contexts:
        meant = suggestion(name, contexts) or " (rocketlens context list)"
        raise BadInput(f"{path} has {counted(len(contexts), 'context')}, but not this one{meant}")
    values = contexts[name]
    where = f"{path}: context number {list(contexts).index(name) + 1}"
    _check_names(where, values, _KINDS_OF_KEYS)
    if len([key for key in _SECRETS if key in values]) > 1:
        raise BadInput(f"{where}: give only one of {', '.join(_SECRETS)}")
    for key in ("store", "archive"):
        if key in values and len(values) > 1:
            raise BadInput(
                f"{where}: {key} cannot be combined with other keys, which are for clusters"
            )
    directory = path.expanduser().absolute().parent
    paths = {
        key: str(directory / Path(values[key]).expanduser())
        for key in _PATHS
        if key in values and not (key == "archive" and "://" in values[key])
    }
    return Context(**{**values, **paths})


def _check_names(where: str, values: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    for number, (key, value) in enumerate(values.items(), 1):
        if key not in kinds:
            # The key is not shown, because it can be a misplaced secret.
            raise BadInput(
                f"{where}: key number {number} is unknown; known keys: {', '.join(kinds)}"
                f"{suggestion(key, kinds)}"
            )
        if not isinstance(value, kinds[key]):
            raise BadInput(f"{where}: {key} must be {_KINDS[kinds[key]]}")
        if value == "":
            raise BadInput(f"{where}: {key} is empty")


def change_contexts(
    change: "Callable[[TOMLDocument], object]", existing: str | None = None
) -> Path:
    """Change the file with ``change``, which receives its document; return the file's path.

    Locked against concurrent changes, and replaced atomically. A new file is private.

    :param existing: The name of a context that must exist.
    :raises BadInput: if the file is invalid before or after the change, or ``change`` raises it.
    :raises OSError: if it cannot be written.
    """
    import tomlkit

    path = config_path()
    target = path.resolve()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        # NFS cannot lock directories.
        with suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_EX)
        config = _load(path)
        if existing is not None:
            _existing_context(path, config, existing)
        document = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
        change(document)
        text = document.as_string()
        changed = _config_of(path, text.encode("utf-8"))
        for name in changed["contexts"]:
            _read_context(path, changed, name)
        write_contexts(target, text)
    finally:
        os.close(directory)
    return path


def add_context(document: "TOMLDocument", name: str, values: Mapping[str, str | bool]) -> None:
    """Add a context to a file.

    :raises BadInput: if the name exists, or the name or a value is invalid.
    """
    import tomlkit

    if any(isinstance(value, str) and _CONTROLS.search(value) for value in values.values()):
        raise BadInput("a value has a control character in it")
    if _NAME.fullmatch(name) is None:
        raise BadInput("the name of a context has 1 to 64 letters, digits, _ and -")
    contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
    if name in contexts:
        raise BadInput(f"there is a context {name} already: rocketlens context remove {name}")
    contexts[name] = dict(values)


def remove_context(document: "TOMLDocument", name: str) -> None:
    """Remove a context from a file, and the default context if it is that one."""
    if document.get(DEFAULT) == name:
        del document[DEFAULT]
    del document["contexts"][name]


def write_contexts(target: Path, text: str) -> None:
    """Replace the file atomically; a new file is private.

    :raises OSError: if it cannot be written.
    """
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    # Before `try`: an existing file belongs to another program, perhaps on another machine.
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        partial.chmod(mode)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
