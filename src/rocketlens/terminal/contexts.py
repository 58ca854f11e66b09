"""Named contexts: clusters and stores by name, in a file of the user's.

::

    default_context = "prod"                 # optional

    [contexts.prod]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    namespace = "shop"
    access_key = "reader"
    secret_key_file = "prod.secret"          # or secret_key_env = "PROD_SECRET", or secret_key
    ca = "prod-ca.pem"        # TLS; also tls, check_hostname, insecure, cert, cert_key

    [contexts.backup]
    store = "/backup/rocketmq/store"

The file is ``$ROCKETLENS_CONFIG``, else ``rocketlens/config.toml`` in ``$XDG_CONFIG_HOME``, else in
``~/.config``. A path in it counts from the file's own directory. Neither a name that the file gives
(of a context, a key, a variable) nor a secret nor the path of its file is ever printed: what was
meant to be a name may be a secret. Only a regular file is read, of the user's own or root's, that
not everybody may write.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.terminal.connection_options import CONTEXT_VARIABLE
from rocketlens.terminal.output import note

CONFIG_VARIABLE: Final = "ROCKETLENS_CONFIG"

_PATHS: Final = ("store", "secret_key_file", "ca", "cert", "cert_key")
_SECRETS: Final = ("secret_key", "secret_key_file", "secret_key_env")
_PLACE: Final = re.compile(r"at line \d+, column \d+")
_KINDS: Final = {str: "text in quotation marks", bool: "true or false", dict: "a table"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where to look and as whom; what is None or empty is left to others to say."""

    store: str | None = None
    """A store directory, instead of a cluster."""
    namesrv: str | None = None
    """Name servers with semicolons between them."""
    namespace: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    secret_key_file: str | None = None
    secret_key_env: str | None = None
    """The name of an environment variable."""
    tls: bool | None = None
    check_hostname: bool | None = None
    insecure: bool | None = None
    """TLS with whoever answers, as RocketMQ's test mode has it."""
    ca: str | None = None
    """Who signed the servers' certificates, PEM."""
    cert: str | None = None
    cert_key: str | None = None
    """Our own certificate and its key, PEM."""

    def over(self, other: "Context") -> "Context":
        """Give what this says, and what the other says of the rest.

        Store and name servers are one question, and so are the three ways to give a secret.
        """
        mine, others = self.given, other.given
        for names in (("store", "namesrv"), _SECRETS):
            if any(name in mine for name in names):
                others = {name: value for name, value in others.items() if name not in names}
        return Context(**{**others, **mine})

    @property
    def given(self) -> dict[str, Any]:
        """What it says, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, "")}

    @property
    def has_place(self) -> bool:
        """Whether it says where to look."""
        return self.store is not None or self.namesrv is not None

    def secret(self) -> str | None:
        """Give the secret key, from where it is.

        :raises BadInput: when the file or the variable has none.
        """
        if self.secret_key_file is not None:
            return read_secret(Path(self.secret_key_file))
        if self.secret_key_env is not None:
            secret = os.environ.get(self.secret_key_env)
            if not secret:
                raise BadInput("secret_key_env: the variable that it names is not set")
            return secret
        return self.secret_key


_KINDS_OF_KEYS: Final = {
    each.name: bool if each.name in {"tls", "check_hostname", "insecure"} else str
    for each in fields(Context)
}


def config_path() -> Path:
    """Give where the file is, or would be."""
    given = os.environ.get(CONFIG_VARIABLE)
    if given:
        return Path(given)
    directory = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(directory) if directory.startswith("/") else Path.home() / ".config"
    return base / "rocketlens" / "config.toml"


def named_context(name: str) -> Context:
    """Give the context of a name.

    :raises BadInput: when there is no such file, or no such context in it, or it says nonsense.
    """
    path = config_path()
    config = _load(path)
    if config is None:
        raise BadInput(f"a context is asked for, and there is no file {path}")
    return _chosen(path, config, name)


def default_context() -> Context:
    """Give the context that is used where nothing else says where to look; empty for none.

    :raises BadInput: as `named_context`.
    """
    name = os.environ.get(CONTEXT_VARIABLE)
    if name:
        return named_context(name)
    path = config_path()
    config = _load(path)
    if config is None:
        if os.environ.get(CONFIG_VARIABLE):
            raise BadInput(f"{CONFIG_VARIABLE}: there is no file {path}")
        return Context()
    default = config.get("default_context")
    return Context() if default is None else _chosen(path, config, default)


def read_secret(path: Path) -> str:
    """Read a file that holds a secret and nothing else; line ends after it don't count.

    :raises BadInput: when there is none in it, or it cannot be read.
    """
    where = "the file of the secret key (secret_key_file)"
    try:
        with opened_regular(path, where) as file:
            warn_of_readers(os.fstat(file.fileno()).st_mode, path)
            content = file.read(limits.MAX_SECRET_BYTES + 1)
    except OSError as error:
        # Without its name: it may be the secret itself.
        raise BadInput(f"{where} cannot be read: {error.strerror or error}") from None
    if len(content) > limits.MAX_SECRET_BYTES:
        raise BadInput(f"{where} has over {limits.MAX_SECRET_BYTES} bytes: that is no secret key")
    try:
        secret = content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        # Without the cause, which holds the content.
        raise BadInput(f"{where} holds no text: that is no secret key") from None
    if not secret:
        raise BadInput(f"{where} is empty: it should hold the secret key")
    return secret


def opened_regular(path: Path, where: str) -> BinaryIO:
    """Open a file that is a regular one (or the null device), so that reading it never waits.

    :raises BadInput: when it is something else, saying ``where``.
    :raises OSError: when it cannot be opened.
    """
    if "\0" in str(path):
        raise BadInput("a path has a zero character in it")
    # A pipe without a writer would hold up opening it.
    opened = os.open(path.expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(opened).st_mode
    if not stat.S_ISREG(mode) and not os.path.samestat(os.fstat(opened), Path(os.devnull).stat()):
        os.close(opened)
        raise BadInput(f"{where} is not a regular file")
    return os.fdopen(opened, "rb")


def check_owner(file: BinaryIO, path: Path) -> None:
    """Refuse a file that somebody else may have written: it says whom to trust.

    :raises BadInput: when it is another user's, or everybody may write it.
    """
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        return
    if found.st_uid not in {0, os.geteuid()}:
        raise BadInput(f"{path} belongs to another user (id {found.st_uid}): it is not used")
    if found.st_mode & stat.S_IWOTH:
        raise BadInput(f"everybody may write {path}: it is not used (chmod o-w {path})")


def warn_of_readers(mode: int, path: Path) -> None:
    """Say that others can read a secret; who keeps it so may have to."""
    if stat.S_IMODE(mode) & 0o077:
        note(f"{path} holds a secret key, and others may read it: chmod 600 {path}")


def _load(path: Path) -> dict[str, Any] | None:
    """Read the file; None when there is none.

    :raises BadInput: when it is no TOML, or not of the form above.
    """
    import tomllib

    try:
        with opened_regular(path, f"{path}") as file:
            check_owner(file, path)
            content = file.read(limits.MAX_CONTEXTS_BYTES + 1)
            mode = os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        return None
    if len(content) > limits.MAX_CONTEXTS_BYTES:
        raise BadInput(
            f"{path} has over {limits.MAX_CONTEXTS_BYTES} bytes: that is no configuration"
        )
    try:
        config = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # Without the rest of their texts, which may hold what they met.
        is_toml = isinstance(error, tomllib.TOMLDecodeError)
        place = _PLACE.search(str(error)) if is_toml else None
        said = f"it is not TOML{f' ({place[0]})' if place else ''}" if is_toml else "it is no UTF-8"
        raise BadInput(f"{path}: {said}") from None
    _check_names(f"{path}", config, {"default_context": str, "contexts": dict})
    contexts = config.setdefault("contexts", {})
    for number, values in enumerate(contexts.values(), 1):
        if not isinstance(values, dict):
            raise BadInput(
                f"{path}: number {number} of its contexts must be a table: [contexts.NAME]"
            )
    if any("secret_key" in values for values in contexts.values()):
        warn_of_readers(mode, path)
    return config


def _chosen(path: Path, config: Mapping[str, Any], name: str) -> Context:
    """Give one context of a file, its paths made absolute.

    :raises BadInput: when it is not there, or says nonsense.
    """
    contexts = config["contexts"]
    if name not in contexts:
        raise BadInput(f"{path} has {len(contexts)} contexts, and none of that name")
    values = contexts[name]
    where = f"{path}: number {list(contexts).index(name) + 1} of its contexts"
    _check_names(where, values, _KINDS_OF_KEYS)
    if len([key for key in _SECRETS if key in values]) > 1:
        raise BadInput(f"{where}: give one of {', '.join(_SECRETS)}")
    if "store" in values and len(values) > 1:
        raise BadInput(f"{where}: store needs nothing beside it, for no cluster is asked")
    directory = path.expanduser().absolute().parent
    paths = {
        key: str(directory / Path(values[key]).expanduser()) for key in _PATHS if key in values
    }
    return Context(**{**values, **paths})


def _check_names(where: str, values: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    for number, (key, value) in enumerate(values.items(), 1):
        if key not in kinds:
            near = get_close_matches(key[:100], kinds, 1, 0.75)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise BadInput(
                f"{where}: key number {number} is unknown{meant}; there are {', '.join(kinds)}"
            )
        if not isinstance(value, kinds[key]):
            raise BadInput(f"{where}: {key} must be {_KINDS[kinds[key]]}")
        if value == "":
            raise BadInput(f"{where}: {key} is empty")
