"""What ``import rocketlens`` gives, and what it costs."""

import importlib
import inspect
import re
import subprocess
import sys
from enum import Enum

import pytest

import rocketlens
import rocketlens.testing
from rocketlens.decode.rules import BodyRules


@pytest.mark.parametrize("name", rocketlens.__all__)
def test_every_public_name_is_the_thing_itself(name):
    found = getattr(rocketlens, name)
    home = importlib.import_module(found.__module__)
    assert getattr(home, found.__name__) is found
    assert name in dir(rocketlens)


def public_functions():
    """Yield functions and constructors that programs call, with their names."""
    homes = [rocketlens, rocketlens.testing]
    named = {name: getattr(home, name) for home in homes for name in home.__all__}
    for name, found in (named | {"BodyRules": BodyRules}).items():
        if not inspect.isclass(found):
            yield name, found
        elif not issubclass(found, Exception | Enum):
            yield name, found.__init__
            methods = [each for each in dir(found) if not each.startswith("_")]
            for method in methods:
                if callable(getattr(found, method)):
                    yield f"{name}.{method}", getattr(found, method)


def test_whatever_takes_a_path_takes_text_and_path_like():
    paths = {}
    for name, function in public_functions():
        for parameter in inspect.signature(function).parameters.values():
            kind = parameter.annotation
            text = kind if isinstance(kind, str) else str(kind)
            if re.search(r"\bPath(Like)?\b", text):
                paths[f"{name} {parameter.name}"] = text
    assert {"open_store path", "cluster directory", "from_file path"} <= {
        each.removeprefix("BodyRules.") for each in paths
    }
    alike = re.compile(r"\bstr\b.*\bPathLike\[str\]|\bPathLike\[str\].*\bstr\b")
    assert {name: text for name, text in paths.items() if not alike.search(text)} == {}


SOURCES = ["Store", "Archive", "MQAdmin", "SyncMQAdmin"]
NOT_SHARED = {
    "find_for": "asks with a request that is parsed, for the doors of this package",
    "groups": "an archive has no groups",
    "look_up": "the cursor of an archive",
    "look_up_for": "as look_up",
    "path": "the directory of a store",
}
OWN_ARGUMENTS = {
    ("scan", "cursor"): "of an archive",
    ("scan_for", "cursor"): "of an archive",
    ("scan_for", "checks_topics"): "a cluster always checks them",
    ("status", "with_groups"): "of a store, whose files are many",
    ("tail", "follow"): "of a cluster, where messages arrive",
    ("tail", "on_event"): "as follow",
}


def shared_methods():
    of_files, of_clusters = [
        {name for each in sources for name in dir(getattr(rocketlens, each)) if name[0] != "_"}
        for sources in (SOURCES[:2], SOURCES[2:])
    ]
    assert of_files & of_clusters == of_files - {"find_for", "look_up", "look_up_for", "path"}
    return sorted(of_files - NOT_SHARED.keys())


@pytest.mark.parametrize("method", shared_methods())
def test_every_source_has_the_same_methods_with_the_same_arguments(method):
    taken = {}
    for source in SOURCES:
        function = getattr(getattr(rocketlens, source), method)
        taken[source] = [
            (each.name, each.kind, each.default)
            for each in inspect.signature(function).parameters.values()
            if (method, each.name) not in OWN_ARGUMENTS
        ]
    assert all(each == taken["Store"] for each in taken.values()), taken


@pytest.mark.parametrize(
    ("use", "error", "said"),
    [
        (lambda: rocketlens.open_shop, AttributeError, "'open_shop'; did you mean open_store"),
        (lambda: rocketlens.Consumer, AttributeError, "'Consumer'; did you mean PushConsumer"),
        (lambda: rocketlens.DefaultMQProducer, AttributeError, "did you mean Producer"),
        (lambda: rocketlens.Zebra, AttributeError, "has no attribute 'Zebra'$"),
        (lambda: rocketlens._open_store, AttributeError, "has no attribute '_open_store'$"),
        (lambda: rocketlens.Message("T", "x", key="k"), TypeError, "Message.*'key'.*mean keys"),
        (
            lambda: rocketlens.PushConsumer("a:1", group="g", model="x"),
            TypeError,
            "PushConsumer.*'model'.*mean broadcasting",
        ),
        (lambda: rocketlens.Producer(namesrv_addr="a:1"), TypeError, "mean name_servers"),
        (lambda: rocketlens.Producer(producer_group="g"), TypeError, "mean group"),
    ],
)
def test_a_word_of_another_client_is_refused_with_ours(use, error, said):
    with pytest.raises(error, match=said):
        use()


def test_a_blocking_producer_may_be_started():
    with rocketlens.SyncProducer("127.0.0.1:1") as producer:
        producer.start()


def test_nothing_of_it_is_loaded_before_it_is_used():
    code = (
        "import sys; from rocketlens import errors\n"
        "print(*(name for name in sys.modules if 'rocketlens.' in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rocketlens.errors"]


def test_from_import_works_for_all():
    code = "from rocketlens import *; print(open_store.__name__, Store.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["open_store", "Store"]
