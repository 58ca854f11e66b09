"""RocketMQ's configuration keys by name, and how those without a meaning here are treated.

One rule for all that reads a configuration (``broker.conf``, ``namesrv.conf``, the arguments of
:func:`rocketlens.testing.cluster`):

==================================================  ===========================================
a key without a meaning here that                   is
==================================================  ===========================================
asks for access control, or for other TLS           refused: otherwise it would be off unnoticed
looks like a key that has one                       refused, with the key that was probably meant
is any other: RocketMQ has over 500                 named in a warning
==================================================  ===========================================
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rocketlens.errors import BadInput

ACCESS_CONTROL: Final = (
    "name servers have no access control, here as in RocketMQ, and every client that reaches the "
    "port could change routes; remove the key, and let only trusted clients reach the port"
)
OTHER_TLS: Final = "this TLS setting is not supported here; remove the key, or use another server"

_REFUSED_WHEN_TRUE: Final = {
    "aclEnable": ACCESS_CONTROL,
    "authenticationEnabled": ACCESS_CONTROL,
    "authorizationEnabled": ACCESS_CONTROL,
    "migrateAuthFromV1Enabled": ACCESS_CONTROL,
    "useTLS": "set tls.enable=true instead",
}
_TLS_PREFIX: Final = "tls."
_MIN_SIMILARITY: Final = 0.83
"""How much alike a key and the one that was probably meant are, at least, of 1."""
_MAX_SHOWN: Final = 100

_ROCKETMQS: Final = frozenset(
    {
        *("accessMessageInMemoryHotRatio", "brokerIP2", "flushConsumerOffsetHistoryInterval"),
        *("haListenPort", "mappedFileSizeConsumeQueueExt", "mapperFileSizeBatchConsumeQueue"),
        *("storePathDLedgerCommitLog", "transactionOpBatchInterval"),
    }
)
"""Keys of RocketMQ without a meaning here that look like a key with one, of a broker or a name
server.
"""


def check_unknown_keys(
    unknown: Mapping[str, str], known_keys: Iterable[str], where: str
) -> tuple[str, ...]:
    """Return the keys that are to be named in a warning, sorted.

    ``unknown`` has the entries whose keys are not ``known_keys``; errors name ``where`` they stand.

    :raises BadInput: when a key must not be passed over.
    """
    names = {*_REFUSED_WHEN_TRUE, *known_keys}
    passed_over = []
    for name in sorted(unknown):
        reason = _refusal(name, unknown[name].strip())
        if reason is not None:
            raise BadInput(f"{where}: {name[:_MAX_SHOWN]}={unknown[name][:20]}: {reason}")
        if name not in _ROCKETMQS and name not in _REFUSED_WHEN_TRUE:
            meant = _probably_meant(name, names)
            if meant is not None:
                shown = name[:_MAX_SHOWN]
                raise BadInput(
                    f"{where}: {shown} is not a key of this server; did you mean {meant}?"
                )
        passed_over.append(name)
    return tuple(passed_over)


def _refusal(name: str, value: str) -> str | None:
    """Return why a key may not be passed over; None when it may."""
    if name.startswith(_TLS_PREFIX):
        return OTHER_TLS if value else None
    return _REFUSED_WHEN_TRUE.get(name) if value.lower() == "true" else None


def _probably_meant(name: str, names: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    by_lower_case = {each.lower(): each for each in names}
    lower = name.lower()[:_MAX_SHOWN]
    for key in get_close_matches(lower, by_lower_case, 1, _MIN_SIMILARITY):
        return by_lower_case[key]
    return None
