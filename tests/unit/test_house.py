"""The rules of the house that no linter knows."""

import ast
import functools
import graphlib
import inspect
import io
import itertools
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

import rocketlens
import rocketlens.testing
from docs.module_map import sizes

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
FILES = sorted(SOURCE.rglob("*.py"))
API = (rocketlens, rocketlens.testing)

MAXIMUM_FILE_LINES = 800
MAXIMUM_FUNCTION_LINES = 70
MAXIMUM_FOLDER_FILES = 20
MAXIMUM_CLASS_LINES = 400

# Words that say nothing of what a thing is; the field has a word for each.
EMPTY_WORDS = {"id", "pos", "ts", "data", "info", "manager", "util", "utils"}

# Names that meant several things, or hid what a thing is. Say byte_offset, queue_offset, slot, row,
# ResumePoint or range; rng; stats.
VAGUE_NAMES = {"place", "places", "chance", "figures", "Figures"}

# A docstring begins with what happens: Return, Read, Write, Check, Add, Start, Send ...
VAGUE_VERBS = {
    *("Give", "Gives", "Say", "Says", "Tell", "Tells", "Hand", "Hands", "Have", "Hear", "Know"),
    *("Knows", "Learn", "Settle", "Note", "Begin", "Go"),
}

# Programs do things, not people.
PEOPLE = re.compile(r"\b(nobody|somebody|anybody|everybody|whoever)\b", re.IGNORECASE)

# A command pays for these when it needs them, not when it is named.
HEAVY_PACKAGES = ("fastapi", "pandas", "pyarrow", "pyspark", "uvicorn")

# A bound is named MAX_ or MIN_. limits.py has those of several rooms.
OTHER_BOUND = re.compile(r"_?(MOST|LARGEST|LONGEST|FEWEST|SMALLEST|LEAST)_[A-Z0-9_]+")

# What only model/rocketmq.py spells out: prefixes and topics of RocketMQ's own, the rule for names.
ROCKETMQ_WORDS = re.compile(
    r"%(RETRY|DLQ|LMQ)%|^(CID_)?(RMQ_SYS|rmq_sys)_|^(TBW102|SCHEDULE_TOPIC_XXXX|SELF_TEST_TOPIC)$"
    r"|^(TRANS_CHECK_MAX_TIME_TOPIC|OFFSET_MOVED_EVENT|BenchmarkTest)$|a-zA-Z0-9_-"
)
# What only model/rocketmq.py and model/life.py may name, in comments and docstrings, too.
KEPT_IN_ROCKETMQ = re.compile(r"%RETRY%|SCHEDULE_TOPIC|rmq_sys_wheel_timer|HALF_TOPIC")

# How many lines a room has; one percent more is no growth. A room that has to grow gets a
# larger number here, with the reason behind it.
ROOM_LINES = {
    # Answers as tables in notebooks; the names of fields, for all rooms above; bodies as text in
    # tables; the names of brokers in filters; the nearest of known names;
    # sentences of what a form of the console cannot ask for, which pages have in Chinese, too.
    "model": 5_133,
    # Compiled code decides which bodies are text, and which JSON; the origin of records.
    "formats": 9_060,
    # Requests about lite topics and replication, for mqadmin; the mapping of static topics.
    "wire": 3_792,
    "store": 11_850,
    # With lite topics of a store, the offsets of broadcasts, and static topics, whose positions are
    # not those of the queues that are read; what stores and clusters did not have in common;
    # messages that are waited for; counts of a topic by time; the brokers of messages; causes of
    # dead letters, for metrics, too.
    "query": 9_446,
    "net": 2_852,
    # Schemas of registries, of three kinds and with a login; a bound for what JSON Schema checks.
    "decode": 3_357,
    "bulk": 3_696,
    "archive": 4_413,
    "client": 15_304,
    "namesrv": 1_178,
    "broker": 13_959,
    "pipeline": 3_868,
    "tap": 1_213,
    "testing": 307,
    # Headings in the list of commands; hints in JSON are notes; messages sorted by values.
    "terminal": 2_015,
    # With lite topics, listed and searched; the words of the console's search box; what a LIMIT
    # needs; completion of names; doctor's --watch.
    "cli": 9_148,
    # 21 more commands of RocketMQ 5.5.
    "mqadmin": 4_558,
    # Tools of the Model Context Protocol; two messages side by side, counts of a range of times.
    # Alarms: a message that must come by a time.
    "console": 12_710,
    # A name that the package does not have is answered with the nearest; headings of commands; late
    # imports of numpy and pyarrow.
    "root": 1_082,
    "all": 118_950,
    "tests": 119_302,
}

# Classes over the bound, until each has a module of its own subject again. None may be added.
LARGE_CLASSES = {
    "Appender",
    "Channel",
    "ClusterCalls",
    "ClusterSource",
    "Producer",
    "QueueWriter",
    "StoreReader",
}

# Split, so that this file does not break the rule it checks.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def every_file(find_wrong):
    """Make a test of a function that returns what is wrong in one file: nothing is, in any."""

    def test():
        wrong = {path.relative_to(SOURCE).as_posix(): find_wrong(path) for path in FILES}
        assert {name: found for name, found in wrong.items() if found} == {}

    test.__name__ = find_wrong.__name__
    return test


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes_of(path):
    """All nodes of a file: to walk its tree takes longer than what is asked of them."""
    return list(ast.walk(tree_of(path)))


def functions_of(path):
    return [node for node in nodes_of(path) if isinstance(node, Function)]


def arguments_of(function):
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [argument.arg for argument in named if argument is not None]


def public_definitions(body, prefix=""):
    """Classes and functions a caller can reach by name: not those inside functions."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{prefix}{node.name}.")


@every_file
def test_no_file_is_over_800_lines(path):
    # A table: each bound with its reason.
    if path == SOURCE / "rocketlens" / "limits.py":
        return []
    return path.read_text(encoding="utf-8").splitlines()[MAXIMUM_FILE_LINES:]


@every_file
def test_no_function_is_over_70_lines(path):
    sizes = {node.name: node.end_lineno - node.lineno + 1 for node in functions_of(path)}
    return {name: size for name, size in sizes.items() if size > MAXIMUM_FUNCTION_LINES}


def test_no_class_is_over_400_lines():
    sizes_of = {
        node.name: node.end_lineno - node.lineno + 1
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    }
    large = {name for name, size in sizes_of.items() if size > MAXIMUM_CLASS_LINES}
    assert large <= LARGE_CLASSES


def test_no_room_grows_past_its_lines():
    lines = {room: size.lines for room, size in sizes().items()}
    assert lines.keys() == ROOM_LINES.keys()
    assert {room: n for room, n in lines.items() if n > ROOM_LINES[room] * 1.01} == {}


@every_file
def test_every_module_and_public_class_has_a_docstring(path):
    tree = tree_of(path)
    undocumented = [
        name
        for name, node in public_definitions(tree.body)
        if isinstance(node, ast.ClassDef) and not ast.get_docstring(node)
    ]
    if path.name != "__init__.py" and not ast.get_docstring(tree):
        undocumented.append("the module")
    return undocumented


def test_every_function_of_the_public_api_has_a_docstring():
    exported = [getattr(module, name) for module in API for name in module.__all__]
    methods = [
        getattr(value, name)
        for value in exported
        if inspect.isclass(value)
        for name in dir(value)
        if not name.startswith("_")
    ]
    assert [
        each
        for each in (*exported, *methods)
        if isinstance(each, property) or callable(each)
        if not inspect.getdoc(each)
    ] == []


@every_file
def test_nothing_is_left_to_do(path):
    return UNFINISHED.findall(path.read_text(encoding="utf-8"))


@every_file
def test_no_parameter_has_an_empty_word_for_a_name(path):
    return [
        f"{function.name}({argument})"
        for function in functions_of(path)
        for argument in arguments_of(function)
        if argument in EMPTY_WORDS
    ]


@every_file
def test_no_module_has_an_empty_word_for_a_name(path):
    return EMPTY_WORDS.intersection(path.relative_to(SOURCE).with_suffix("").parts)


def module_constants(path):
    """The names of constants of a module and of its classes."""
    for body in nodes_of(path):
        for node in body.body if isinstance(body, ast.Module | ast.ClassDef) else []:
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            yield from (each.id for each in targets if isinstance(each, ast.Name))


@every_file
def test_every_bound_is_named_max_or_min(path):
    return [name for name in module_constants(path) if OTHER_BOUND.fullmatch(name)]


def test_every_bound_says_why():
    tree = tree_of(SOURCE / "rocketlens" / "limits.py")
    names = [node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)]
    said = [
        before.target.id
        for before, node in itertools.pairwise(tree.body)
        if isinstance(before, ast.AnnAssign) and isinstance(node, ast.Expr)
    ]
    assert said == names
    assert len(set(names)) == len(names)


@every_file
def test_words_of_rocketmq_are_spelled_in_one_module(path):
    if path == SOURCE / "rocketlens" / "model" / "rocketmq.py":
        return []
    docstrings = {node.value for node in nodes_of(path) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if node not in docstrings
        if ROCKETMQ_WORDS.search(
            node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        )
    ]


@every_file
def test_where_rocketmq_keeps_a_message_is_named_in_one_module(path):
    is_there = path.parent.name == "model" and path.name in {"rocketmq.py", "life.py"}
    return [] if is_there else KEPT_IN_ROCKETMQ.findall(path.read_text())


@every_file
def test_a_docstring_begins_with_what_happens(path):
    begins = {
        node.name: (ast.get_docstring(node) or " ").split(maxsplit=1)[:1]
        for node in nodes_of(path)
        if isinstance(node, Function | ast.ClassDef)
    }
    return {name: words for name, words in begins.items() if VAGUE_VERBS & set(words)}


@every_file
def test_no_name_is_one_of_the_vague_ones(path):
    names = set()
    for node in nodes_of(path):
        names |= {getattr(node, field, None) for field in ("id", "attr", "arg", "name")}
    return VAGUE_NAMES & names


@every_file
def test_docstrings_and_comments_speak_of_programs(path):
    content = path.read_bytes()
    comments = [
        token.string
        for token in tokenize.tokenize(io.BytesIO(content).readline)
        if token.type == tokenize.COMMENT
    ]
    texts = [
        node.value.value
        for node in nodes_of(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return [text for text in (*comments, *texts) if PEOPLE.search(text)]


def test_a_public_class_name_exists_once():
    modules = defaultdict(list)
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(path.name)
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}


@every_file
def test_a_documentation_of_a_value_follows_the_value(path):
    """A text on its own documents the assignment above it, or has lost what it documented."""
    lines = path.read_text(encoding="utf-8").splitlines()
    bodies = [node.body for node in nodes_of(path) if isinstance(node, ast.Module | ast.ClassDef)]
    return [
        text.lineno
        for body in bodies
        for before, text in itertools.pairwise(body)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and not (isinstance(before, ast.Assign | ast.AnnAssign) and lines[text.lineno - 2].strip())
    ]


@every_file
def test_examples_of_a_command_are_lines_of_a_text(path):
    return [
        node.target.id
        for node in tree_of(path).body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "").endswith("EXAMPLES")
        if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
    ]


def test_no_folder_has_more_files_than_one_looks_through():
    folders = Counter(path.parent.relative_to(SOURCE).as_posix() for path in FILES)
    assert {
        folder: files for folder, files in folders.items() if files > MAXIMUM_FOLDER_FILES
    } == {}


def test_the_cli_imports_nothing_heavy_until_a_command_needs_it():
    program = "import sys, rocketlens.main; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(HEAVY_PACKAGES).isdisjoint(done.stdout.split())


def test_the_public_names_cost_nothing_heavy():
    program = "import sys, rocketlens; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(HEAVY_PACKAGES).isdisjoint(done.stdout.split())


def test_locks_pin_every_package_by_hash_and_name_no_registry():
    for lock in sorted((REPOSITORY / "requirements").glob("*.lock")):
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text
        pins = re.findall(
            r"^[a-z0-9-]+==.+(?:\n +--hash=sha256:[0-9a-f]{64}.*)+", text, re.MULTILINE
        )
        requirements = [line for line in text.splitlines() if line and line[0] not in " #"]
        assert len(pins) == len(requirements) > 0


def test_a_golden_store_has_what_was_sent_and_both_states_of_the_store(golden):
    for version in ("4.9.7", "5.5.0"):
        golden_store = golden(version)
        assert golden_store.sent[0]["offset_msg_id"]
        assert not (golden_store.store / "abort").exists()
        assert (golden_store.crashed / "abort").exists()
        assert any((golden_store.mqadmin).iterdir())


def module_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path, modules):
    """The modules that a module imports when it runs, those in functions, too."""
    tree = tree_of(path)
    typed = {
        id(each)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for each in ast.walk(branch)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typed:
            continue
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{each.name}" for each in node.names}
            found |= {name if name in modules else node.module for name in names}
    # The package's own module loads what it names when that is asked for.
    return found & modules - {"rocketlens"}


def test_modules_import_each_other_in_no_circle():
    modules = {module_of(path) for path in FILES}
    arrows = {module_of(path): imports_of(path, modules) for path in FILES}
    graphlib.TopologicalSorter(arrows).prepare()
