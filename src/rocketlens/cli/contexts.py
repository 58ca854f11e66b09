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
``~/.config``. A path in it counts from the file's own directory. No value of it is ever printed:
what was meant to be a name may be a secret.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, Final

from rocketlens.cli.connection_options import CONTEXT_VARIABLE
from rocketlens.cli.output import note
from rocketlens.errors import BadInput

CONFIG_VARIABLE: Final = "ROCKETLENS_CONFIG"
LARGEST_FILE_BYTES: Final = 1024 * 1024
LARGEST_SECRET_BYTES: Final = 4096

_PATHS: Final = ("store", "secret_key_file", "ca", "cert", "cert_key")
_SECRETS: Final = ("secret_key", "secret_key_file", "secret_key_env")
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
                raise BadInput(f"secret_key_env: {self.secret_key_env} is not set")
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
        raise BadInput(f"context {name[:60]!r}: there is no file {path}")
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

    :raises BadInput: when there is none in it.
    :raises OSError: when it cannot be read.
    """
    with _opened(path) as file:
        warn_of_readers(os.fstat(file.fileno()).st_mode, path)
        content = file.read(LARGEST_SECRET_BYTES + 1)
    if len(content) > LARGEST_SECRET_BYTES:
        raise BadInput(f"{path} has over {LARGEST_SECRET_BYTES} bytes: that is no secret key")
    try:
        secret = content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        # Without the cause, which holds the content.
        raise BadInput(f"{path} holds no text: that is no secret key") from None
    if not secret:
        raise BadInput(f"{path} is empty: it should hold the secret key")
    return secret


def _opened(path: Path) -> BinaryIO:
    if "\0" in str(path):
        raise BadInput("a path has a zero character in it")
    return path.expanduser().open("rb")


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
        with _opened(path) as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
            mode = os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        return None
    if len(content) > LARGEST_FILE_BYTES:
        raise BadInput(f"{path} has over {LARGEST_FILE_BYTES} bytes: that is no configuration")
    try:
        config = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # The text of other errors than the parser's may hold what it met.
        said = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is no UTF-8 text"
        raise BadInput(f"{path}: {said}") from None
    _check_names(f"{path}", config, {"default_context": str, "contexts": dict})
    contexts = config.setdefault("contexts", {})
    for name, values in contexts.items():
        if not isinstance(values, dict):
            raise BadInput(f"{path}: contexts.{name} must be a table: [contexts.{name}]")
    if any("secret_key" in values for values in contexts.values()):
        warn_of_readers(mode, path)
    return config


def _chosen(path: Path, config: Mapping[str, Any], name: str) -> Context:
    """Give one context of a file, its paths made absolute.

    :raises BadInput: when it is not there, or says nonsense.
    """
    contexts = config["contexts"]
    if name not in contexts:
        known = f"it has {', '.join(map(repr, contexts))}" if contexts else "it has none"
        raise BadInput(f"{path} has no context {name[:60]!r}: {known[:300]}")
    values = contexts[name]
    where = f"{path}: contexts.{name}"
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
    for key, value in values.items():
        if key not in kinds:
            raise BadInput(f"{where}: unknown key {key[:60]!r}; there are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]):
            raise BadInput(f"{where}: {key} must be {_KINDS[kinds[key]]}")
        if value == "":
            raise BadInput(f"{where}: {key} is empty")
