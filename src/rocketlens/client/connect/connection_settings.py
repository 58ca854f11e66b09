"""Client settings: each is declared once, as a field of a frozen Struct, and checked there.

A client takes its settings as keyword arguments. `takes_settings` gives its ``__init__`` the
Struct's signature, for type checkers, editors and ``help()``::

    class Reader:
        @takes_settings(ReaderSettings)
        def __init__(self, settings: ReaderSettings) -> None: ...

    Reader("127.0.0.1:9876", group="audit")
"""

import functools
import inspect
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.connect.cluster import Credentials
from rocketlens.net.channel import Handler
from rocketlens.query.options import check_keywords

P = ParamSpec("P")
S = TypeVar("S")
C = TypeVar("C")


class _Addresses(Struct, frozen=True):
    name_servers: str | Iterable[str] | None = None
    """``"host:9876;host2:9876"``, or several addresses; None for the environment's NAMESRV_ADDR."""


class ConnectionSettings(_Addresses, frozen=True, kw_only=True):
    """Settings of the connection to a cluster."""

    namespace: str = ""
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = limits.ADMIN_TIMEOUT_S
    """For each answer, connecting included."""
    connect_timeout_s: float = limits.CONNECT_TIMEOUT_S
    clock: Callable[[], float] = time.monotonic
    """Returns monotonic seconds."""


class AdminSettings(ConnectionSettings, frozen=True, kw_only=True):
    """Additional settings of an admin."""

    handlers: Mapping[int, Handler] | None = None
    """Handlers of brokers' requests, by request code."""
    seen_brokers: str | PathLike[str] | None = None
    """A file that remembers the brokers of answers for 30 days."""


def arguments_of(settings: Struct, kind: type[Struct] | None = None) -> dict[str, Any]:
    """Return settings as keyword arguments, or only the fields of the Struct ``kind``."""
    return {name: getattr(settings, name) for name in (kind or settings).__struct_fields__}


def takes_settings(
    settings: Callable[P, S],
) -> Callable[[Callable[[C, S], None]], Callable[Concatenate[C, P], None]]:
    """Return a decorator for an ``__init__`` that takes the Struct ``settings``.

    The decorated ``__init__`` takes the Struct's arguments. An unknown or missing argument raises
    TypeError with the name of the class that was called.
    """
    signature = inspect.signature(settings)

    def decorate(init: Callable[[C, S], None]) -> Callable[Concatenate[C, P], None]:
        @functools.wraps(init)
        def take(self: C, /, *arguments: P.args, **options: P.kwargs) -> None:
            name = type(self).__qualname__
            check_keywords(name, options, signature.parameters)
            try:
                signature.bind(*arguments, **options)
            except TypeError as error:
                raise TypeError(f"{name}(): {error}") from None
            init(self, settings(*arguments, **options))

        own = next(iter(inspect.signature(init).parameters.values()))
        parameters = [own, *signature.parameters.values()]
        shown: Any = take
        shown.__signature__ = signature.replace(parameters=parameters, return_annotation=None)
        return take

    return decorate
