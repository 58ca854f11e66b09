"""What the kernels are made of, and where their machine code is kept."""

import ast
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.formats.compiled import kernels_device as device
from rocketlens.formats.layout import Layout
from rocketlens.model.text import java

SOURCE = Path(device.__file__).parents[2]
# Which files have functions that are compiled into the kernels of another. What kernels take of
# other files are numbers and layouts: constants, by their values.
TAKES_IN = {
    "formats/compiled/kernels_scan.py": [
        "formats/compiled/kernels_device.py",
        "model/text/java.py",
    ],
    "formats/compiled/kernels_index.py": [
        "formats/compiled/kernels_device.py",
        "formats/compiled/kernels_scan.py",
    ],
    "formats/compiled/kernels_text.py": [
        "formats/compiled/kernels_device.py",
        "formats/compiled/kernels_scan.py",
        "model/text/java.py",
    ],
    "formats/compiled/kernels_pull.py": [
        "formats/compiled/kernels_device.py",
        "formats/compiled/kernels_scan.py",
        "formats/compiled/kernels_text.py",
    ],
    "formats/compiled/kernels_candidates.py": [
        "formats/compiled/kernels_device.py",
    ],
    "formats/compiled/kernels_answer.py": [
        "formats/compiled/kernels_candidates.py",
        "formats/compiled/kernels_device.py",
        "formats/compiled/kernels_look_up.py",
        "formats/compiled/kernels_send_header.py",
    ],
    "formats/compiled/kernels_look_up.py": [
        "formats/compiled/kernels_candidates.py",
        "formats/compiled/kernels_device.py",
        "formats/compiled/kernels_scan.py",
        "formats/compiled/kernels_send_header.py",
        "formats/compiled/kernels_send_parse.py",
        "formats/compiled/kernels_text.py",
    ],
    "formats/compiled/kernels_pull_header.py": [
        "formats/compiled/kernels_device.py",
        "formats/compiled/kernels_look_up.py",
        "formats/compiled/kernels_send_header.py",
        "formats/compiled/kernels_send_parse.py",
    ],
    "formats/compiled/kernels_send_header.py": [
        "formats/compiled/kernels_device.py",
        "model/text/java.py",
    ],
    "formats/compiled/kernels_send_parse.py": [
        "formats/compiled/kernels_device.py",
        "formats/compiled/kernels_send_header.py",
    ],
}


@device.device
def compiled_loads(buffer, at):
    return (
        device.load_i8(buffer, at),
        device.load_i16(buffer, at),
        device.load_i32(buffer, at),
        device.load_i64(buffer, at),
        device.load_word(buffer, at),
    )


@device.device
def compiled_stores(buffer, at, value):
    device.store_i32(buffer, at, value)
    device.store_i64(buffer, at + 4, value)


@device.device
def compiled_mask(buffer, at, wanted):
    return device.byte_mask(buffer, at, wanted)


@device.device
def compiled_lowest_bit(mask):
    return device.lowest_bit(mask)


@given(st.binary(min_size=8, max_size=8), st.integers(0, 7))
def test_machine_code_reads_the_words_that_the_functions_say(content, shift):
    buffer = np.frombuffer(b"x" * shift + content, np.uint8)
    loads = (device.load_i8, device.load_i16, device.load_i32, device.load_i64, device.load_word)
    assert compiled_loads(buffer, shift) == tuple(load(buffer, shift) for load in loads)
    assert device.load_i64(buffer, shift) == int.from_bytes(content, "big", signed=True)
    assert device.load_word(buffer, shift) == int.from_bytes(content, "little")


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 7))
def test_machine_code_writes_the_words_that_the_functions_say(value, shift):
    one, other = np.zeros(20, np.uint8), np.zeros(20, np.uint8)
    compiled_stores(one, shift, value)
    device.store_i32(other, shift, value)
    device.store_i64(other, shift + 4, value)
    assert one.tobytes() == other.tobytes()
    assert one.tobytes()[shift + 4 :][:8] == value.to_bytes(8, "big", signed=True)


@given(st.binary(min_size=64, max_size=64), st.integers(0, 255), st.integers(0, 5))
def test_machine_code_finds_the_bytes_that_the_functions_say(content, wanted, shift):
    buffer = np.frombuffer(b"x" * shift + content, np.uint8)
    mask = compiled_mask(buffer, shift, wanted)
    assert mask == device.byte_mask(buffer, shift, wanted)
    assert [at for at in range(64) if int(mask) >> at & 1] == [
        at for at, byte in enumerate(content) if byte == wanted
    ]
    if mask:
        mask = np.uint64(mask)
        assert compiled_lowest_bit(mask) == device.lowest_bit(mask) == content.index(wanted)


@given(
    st.one_of(st.binary(max_size=50), st.text(max_size=50).map(str.encode)),
    st.integers(0, 2**32 - 1),
)
def test_the_fast_hash_is_java_s(content, seed):
    buffer = np.frombuffer(b"x" * 8 + content, np.uint8)
    hashed = device.hash_text(buffer, 8, len(buffer), seed)
    assert hashed == java.utf8_string_hash(content, 0, len(content), seed)


@pytest.mark.parametrize("state", [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
def test_the_stored_hash_is_the_absolute_value_and_zero_for_the_smallest_int(state):
    signed = state - 2**32 if state >= 2**31 else state
    assert device.index_hash(state) == (0 if signed == -(2**31) else abs(signed))


def imports_of(name):
    """Yield the file, module and name of everything of ours that a file of kernels imports."""
    for node in ast.parse((SOURCE / name).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("rocketlens."):
            room = node.module.removeprefix("rocketlens.").replace(".", "/")
            for alias in node.names:
                file = f"{room}/{alias.name}.py"
                yield (file if (SOURCE / file).is_file() else f"{room}.py"), node.module, alias


def constants_of(name):
    for file, module, alias in imports_of(name):
        if file not in TAKES_IN[name]:
            value = getattr(importlib.import_module(module), alias.name)
            values = value if isinstance(value, tuple) else (value,)
            assert all(isinstance(one, (int, Layout)) for one in values), alias.name
            yield f"{alias.name}={value!r}"


@pytest.mark.parametrize("name", TAKES_IN)
def test_a_file_of_kernels_changes_with_what_is_compiled_into_it(name):
    digest = hashlib.sha256("\n".join(sorted(constants_of(name))).encode())
    for taken in TAKES_IN[name]:
        digest.update((SOURCE / taken).read_bytes())
    text = (SOURCE / name).read_text(encoding="utf-8")
    inlined = re.search(r'^INLINED: Final = "(\w*)"$', text, re.MULTILINE)[1]
    assert inlined == digest.hexdigest()[:16], (
        f"write the new digest into {name}, or stale code runs"
    )


def test_no_file_of_kernels_takes_in_more_than_its_digest_covers():
    for name, taken in TAKES_IN.items():
        list(constants_of(name))
        assert set(taken) <= {file for file, _, _ in imports_of(name)}


KERNEL = '''
from numba import types
from rocketlens.formats.compiled.kernels_device import kernel

@kernel(types.int64, types.int64)
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number
'''


def is_kept_for(writable):
    """Return whether numba keeps code there; a directory for the user is found by HOME on Linux."""
    return writable == "package" or sys.platform == "linux"


@pytest.mark.parametrize("writable", ["package", "user", "nowhere"])
def test_machine_code_is_kept_where_it_can_be(tmp_path, writable):
    package, user = tmp_path / "package", tmp_path / "user"
    package.mkdir()
    user.mkdir()
    (package / "made_here.py").write_text(KERNEL)
    # A file where a directory has to be stops even an administrator, unlike a permission.
    if writable != "package":
        (package / "__pycache__").touch()
    if writable == "nowhere":
        shutil.rmtree(user)
        user.touch()
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(user), "HOME": str(user)}
    program = (
        "from rocketlens.model import compiling; import made_here\n"
        "compiling.tell(lambda is_kept: print('compiling', is_kept)); print(made_here.double(21))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = f"compiling {writable != 'nowhere' and is_kept_for(writable)}\n"
    assert {process.communicate()[0] for process in processes} <= {f"{said}42\n", "42\n"}
    again = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    # What was kept is loaded, and nothing is said.
    assert again.stdout == (f"{said}42\n" if "False" in said else "42\n")
    kept = [path for path in tmp_path.rglob("*.nbc") if package in path.parents]
    kept_for_user = [path for path in tmp_path.rglob("*.nbc") if user in path.parents]
    assert bool(kept) is (writable == "package")
    assert bool(kept_for_user) is (writable == "user" and sys.platform == "linux")
