"""Values that operators keep in a name server, by namespace and key; the order of topics is one.

The file is RocketMQ's own ``kvConfig.json``: ``{"configTable":{namespace:{key:value}}}``, so
either server takes over from the other. Every change is on disk before it is answered, or it has
not happened. Source: ``KVConfigManager``.
"""

import json
from pathlib import Path
from typing import Any, Final

from rocketlens import limits
from rocketlens.errors import BadInput, ConfigError, StoreFailed
from rocketlens.formats import config_json
from rocketlens.store.disk import Disk
from rocketlens.store.fs import read_bytes

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of the order of topics: key topic, value ``broker-a:4;broker-b:4``."""

Table = dict[str, dict[str, str]]


class KvConfig:
    """The values, in memory and, if ``path`` is given, in a file that is read now.

    :raises ConfigError: when the file is there and cannot be understood. It is left alone.
    """

    def __init__(self, path: Path | None = None, disk: Disk | None = None) -> None:
        self.path: Final = path
        self._disk: Final = disk or Disk()
        self._table: Table = {} if path is None else _load(path)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a value.

        :raises BadInput: when there is no room for it.
        :raises StoreFailed: when it cannot be written; what was there before is kept.
        """
        names = {**self._table.get(namespace, {}), key: value}
        self._change({**self._table, namespace: names})

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value; nothing happens when there is none. Otherwise as `put`."""
        if key in self._table.get(namespace, {}):
            names = {name: value for name, value in self._table[namespace].items() if name != key}
            self._change({**self._table, namespace: names})

    def get(self, namespace: str, key: str) -> str | None:
        """Give a value, None when there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Give all values of a namespace, None when nothing was ever put there."""
        names = self._table.get(namespace)
        return None if names is None else dict(names)

    def _change(self, table: Table) -> None:
        content = json.dumps({"configTable": table}, ensure_ascii=False, indent="\t").encode()
        if len(content) > limits.KV_BYTES:
            raise BadInput(f"{len(content)} bytes of values, {limits.KV_BYTES} allowed")
        if self.path is not None:
            try:
                self._disk.write_durably(self.path, content)
            except OSError as error:
                raise StoreFailed(f"{self.path} cannot be written: {error.strerror}") from None
        self._table = table


def _load(path: Path) -> Table:
    content = read_bytes(path, limits.KV_BYTES + 1)
    if not content:
        return {}
    if len(content) > limits.KV_BYTES:
        raise ConfigError(f"{path} is over {limits.KV_BYTES} bytes")
    try:
        top: Any = config_json.loads(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    table = top.get("configTable") if isinstance(top, dict) else None
    if not isinstance(table, dict) or not all(isinstance(each, dict) for each in table.values()):
        raise ConfigError(f"{path} has no configTable of namespaces")
    return {
        namespace: {key: str(value) for key, value in names.items()}
        for namespace, names in table.items()
    }
