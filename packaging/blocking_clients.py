"""Write the blocking clients: for each method of an async client one that waits for it.

    make blocking

Signatures, imports and the first paragraphs of docstrings are those of the async classes;
`documented_by` adds the rest of the docstrings. What is not a call that waits (iteration, futures,
``with``) is written by hand, in ``blocking_client.py`` and ``iterators.py`` of ``client/blocking``.
"""

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.client.blocking.blocking_client import blocking_doc

SOURCE: Final = Path(__file__).parents[1] / "src"
HOME: Final = SOURCE / "rocketlens" / "client" / "blocking"
CLIENT: Final = "rocketlens.client"
BASE: Final = f"{CLIENT}.blocking.blocking_client"


class Client(NamedTuple):
    """A blocking client, and the classes whose methods it has."""

    name: str
    bases: str
    settings: str
    """The dataclass that its constructor takes; empty for a base."""
    classes: tuple[str, ...]
    """``module:class`` below `CLIENT`; the last one is the async client."""
    doc: str


CLUSTER: Final = Client(
    "SyncClusterClient(SyncClient[C])",
    "",
    "",
    ("cluster_client:ClusterClient",),
    "The common part of blocking clients: questions to a cluster.",
)
ADMIN: Final = Client(
    "SyncMQAdmin",
    "SyncClusterClient[MQAdmin]",
    f"{CLIENT}.connect.connection_settings:AdminSettings",
    ("group_admin:GroupAdmin", "mq_admin:MQAdmin"),
    "`rocketlens.MQAdmin` with blocking calls; the same arguments, results and errors.",
)
PRODUCER: Final = Client(
    "SyncProducer",
    "SyncClusterClient[Producer], SendsInBackground[Producer]",
    f"{CLIENT}.send.producer:ProducerSettings",
    ("send.producer:Producer",),
    "`rocketlens.Producer` with blocking calls; the same arguments.",
)
TRANSACTIONS: Final = Client(
    "SyncTransactionProducer",
    "SyncProducer",
    f"{CLIENT}.send.transaction_producer:TransactionSettings",
    ("send.transaction_producer:TransactionProducer",),
    "`rocketlens.TransactionProducer` with blocking calls; the same arguments.\n\n"
    "Plain functions run in threads, async ones in the event loop of this producer's own thread.",
)
PUSH: Final = Client(
    "SyncPushConsumer",
    "SyncClusterClient[PushConsumer], IteratesOverMessages[PushConsumer]",
    f"{CLIENT}.consume.consumer_settings:PushSettings",
    ("consume.consumer_client:ConsumerClient", "consume.push:PushConsumer"),
    """`rocketlens.PushConsumer`, for programs without an event loop; the same arguments.

The listener is a plain function, which runs in threads, or an async one, which runs in the
event loop of this consumer's own thread. `start` begins; or use it in a ``with`` block::

    consumer = rocketlens.SyncPushConsumer("127.0.0.1:9876", group="billing")
    consumer.subscribe("Orders")
    consumer.listen(lambda messages, context: print(messages[0].body))
    with consumer:
        ...""",
)
LITE_PULL: Final = Client(
    "SyncLitePullConsumer",
    "SyncClusterClient[LitePullConsumer], LeavesUnconsumed[LitePullConsumer]",
    f"{CLIENT}.consume.consumer_settings:LitePullSettings",
    ("consume.consumer_client:ConsumerClient", "consume.lite_pull:LitePullConsumer"),
    "`rocketlens.LitePullConsumer` with blocking calls; the same arguments.",
)
FILES: Final = {
    "sync_cluster_client.py": ("What blocking clients ask a cluster", [CLUSTER]),
    "sync_admin.py": ("``MQAdmin`` for programs without an event loop", [ADMIN]),
    "sync_producer.py": ("Producers for programs without an event loop", [PRODUCER, TRANSACTIONS]),
    "sync_consumer.py": ("Consumers for programs without an event loop", [PUSH, LITE_PULL]),
}
MAX_DOC: Final = 86
"""Columns of a docstring between its quotes, in a method."""
BY_HAND: Final = frozenset({"view_message", "start", "close"})
OF_BROKERS: Final = frozenset(
    {"members_changed", "reset_offsets", "offsets_of", "running_info", "consume_directly"}
)
"""What brokers ask a consumer."""
SETTINGS: Final = frozenset({"message_model", "concurrency", "batch", "auto_commit"})
WRAPPERS: Final = {"TopicTail": "SyncTopicTail", "ClusterMessages": "SyncClusterMessages"}
"""What a method returns, and what the caller gets: built of the thread and that."""
HOMES: Final = {
    **dict.fromkeys(
        ["SyncClient", "C", "SendsInBackground", "IteratesOverMessages", "LeavesUnconsumed"], BASE
    ),
    "documented_by": BASE,
    **dict.fromkeys(WRAPPERS.values(), f"{CLIENT}.blocking.iterators"),
    **dict.fromkeys(["takes_settings", "arguments_of"], f"{CLIENT}.connect.connection_settings"),
    "SyncClusterClient": f"{CLIENT}.blocking.sync_cluster_client",
}


def main() -> None:
    """Write all files."""
    for name in FILES:
        (HOME / name).write_text(text_of(name), encoding="utf-8")


def text_of(name: str) -> str:
    """Return the text of one file of `FILES`."""
    title, clients = FILES[name]
    imports = _Imports(f"{CLIENT}.blocking.{name.removesuffix('.py')}")
    classes = [_class(client, imports) for client in clients]
    text = (
        f'"""{title}.\n\nGenerated from the async clients by ``make blocking``: '
        f'change those instead.\n"""\n\n{imports.text()}\n\n' + "\n\n".join(classes)
    )
    for arguments in (["check", "--quiet", "--fix", "--select", "I,F401,TC"], ["format"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *arguments]
        ruff += ["--stdin-filename", str(HOME / name), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


class _Imports:
    """The names that a file needs, and where they come from."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._runtime: set[tuple[str, str]] = set()
        self._typing: set[tuple[str, str]] = set()
        self._defined: set[str] = set()

    def define(self, name: str) -> None:
        self._defined.add(name)

    def add(self, module: str, name: str, *, is_typing: bool = False) -> None:
        if name not in self._defined and module != self._own:
            (self._typing if is_typing else self._runtime).add((module, name))

    def text(self) -> str:
        lines = [f"from {module} import {name}" for module, name in sorted(self._runtime)]
        typing = [f"    from {module} import {name}" for module, name in sorted(self._typing)]
        if typing:
            lines += ["from typing import TYPE_CHECKING", "if TYPE_CHECKING:", *typing]
        return "\n".join(lines)


class _Module:
    """The syntax of an async client's module, and where its names come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        path = SOURCE.joinpath(*name.split(".")).with_suffix(".py")
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self._homes: dict[str, tuple[str, bool]] = {}
        for node in self.tree.body:
            is_typing = isinstance(node, ast.If)
            for each in node.body if isinstance(node, ast.If) else [node]:
                if isinstance(each, ast.ImportFrom) and each.module:
                    for alias in each.names:
                        self._homes[alias.name] = each.module, is_typing
                elif isinstance(each, ast.ClassDef):
                    self._homes[each.name] = name, False
                elif isinstance(each, ast.Assign | ast.AnnAssign):
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    for target in targets:
                        self._homes[ast.unparse(target)] = name, False

    def methods(self, class_name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                for each in node.body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield each

    def add_imports(self, node: ast.AST, imports: _Imports) -> None:
        """Add the names that a signature needs, also those in quoted annotations."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id in self._homes:
                module, is_typing = self._homes[each.id]
                imports.add(module, each.id, is_typing=is_typing)
            elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                try:
                    quoted = ast.parse(each.value, mode="eval")
                except SyntaxError:
                    continue
                self.add_imports(quoted, imports)


def _class(client: Client, imports: _Imports) -> str:
    heading = f"{client.name}({client.bases})" if client.bases else client.name
    for each in ast.walk(ast.parse(f"class {heading}: ...")):
        if isinstance(each, ast.Name) and each.id in HOMES:
            imports.add(HOMES[each.id], each.id)
    module_name, own = client.classes[-1].split(":")
    imports.add(f"{CLIENT}.{module_name}", own)
    imports.define(client.name)
    imports.add(BASE, "documented_by")
    lines = [f"@documented_by({own})", f"class {heading}:", *_indented(_quoted(client.doc))]
    if client.settings:
        home, settings = client.settings.split(":")
        imports.add(home, settings)
        for name in ("takes_settings", "arguments_of"):
            imports.add(HOMES[name], name)
        imports.add(BASE, "SyncClient")
        init = f"super().__init__(lambda: {own}(**arguments_of(settings)))"
        if "[" not in client.bases:
            # Its base makes another client.
            init = init.replace("super().__init__(", "SyncClient.__init__(self, ")
            lines += ["", f"    _client: {own}"]
        lines += _indented(
            f"\n@takes_settings({settings})\n"
            f"def __init__(self, settings: {settings}) -> None:\n"
            f"    {init}\n"
        )
    methods: dict[str, str] = {}
    for name in client.classes:
        module_name, class_name = name.split(":")
        module = _Module(f"{CLIENT}.{module_name}")
        for node in module.methods(class_name):
            if node.name.startswith("_") or node.name in BY_HAND | OF_BROKERS | SETTINGS:
                continue
            methods[node.name] = _method(node, module, imports)
    for text in methods.values():
        lines += _indented(text)
    return "\n".join(lines) + "\n"


def _method(
    node: ast.FunctionDef | ast.AsyncFunctionDef, module: _Module, imports: _Imports
) -> str:
    """Return a method that waits for an async one, or calls a plain one in the client's thread."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    for each in (node.args, node.returns, *node.decorator_list):
        if each is not None:
            module.add_imports(each, imports)
    arguments = node.args
    given = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    given += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    call = node.name if "property" in decorators else f"{node.name}({', '.join(given)})"
    if isinstance(node, ast.AsyncFunctionDef):
        value = f"self._thread.run(self._client.{call})"
    else:
        value = f"self._call(lambda client: client.{call})"
    returns = ast.unparse(node.returns) if node.returns else "None"
    if returns in WRAPPERS:
        returns = WRAPPERS[returns]
        imports.add(HOMES[returns], returns)
        value = f"{returns}(self._thread, {value})"
    doc = blocking_doc(ast.get_docstring(node) or "").split("\n\n", 1)[0]
    if len(doc) > MAX_DOC:
        doc = "\n".join(textwrap.wrap(doc, MAX_DOC))
    lines = [f"@{each}" for each in decorators]
    lines += [f"def {node.name}({ast.unparse(arguments)}) -> {returns}:", *_indented(_quoted(doc))]
    lines += _indented(value if returns == "None" else f"return {value}")
    return "\n".join(lines) + "\n"


def _quoted(doc: str) -> str:
    return f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""'


def _indented(text: str) -> list[str]:
    return [f"    {line}" if line else "" for line in text.split("\n")]


if __name__ == "__main__":
    main()
