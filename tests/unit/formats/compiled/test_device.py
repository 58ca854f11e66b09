"""What kernels are made of, the arrays they take and refuse, and an installation without one."""

import importlib
import mmap
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from rocketlens.errors import BadInput
from rocketlens.formats import columns, compiled
from rocketlens.formats.compiled import device_check as device
from rocketlens.formats.compiled import index, scan
from rocketlens.formats.compiled.rows import RECORD_DTYPE
from rocketlens.formats.rows import IndexEntries
from rocketlens.model.text import java
from tests.unit.formats import kernel_logs as logs


@given(st.binary(min_size=8, max_size=8), st.integers(0, 7))
def test_words_are_read_at_any_alignment(content, shift):
    buffer = np.frombuffer(bytearray(b"x" * shift + content), np.uint8)
    *signed, word = device.loads(buffer, shift)
    assert signed == [int.from_bytes(content[:n], "big", signed=True) for n in (1, 2, 4, 8)]
    assert word == int.from_bytes(content, "little")


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 7))
def test_words_are_written_at_any_alignment(value, shift):
    out = np.zeros(32, np.uint8)
    device.stores(out, shift, value)
    whole = value.to_bytes(8, "big", signed=True)
    written = whole[6:] + whole[4:] + whole + whole[::-1]
    assert out.tobytes() == b"\0" * shift + written + b"\0" * (10 - shift)


@given(st.binary(min_size=64, max_size=64), st.integers(0, 255), st.integers(0, 5))
def test_a_mask_has_the_bits_of_the_bytes_that_are_wanted(content, wanted, shift):
    buffer = np.frombuffer(bytearray(b"x" * shift + content), np.uint8)
    mask, lowest = device.mask(buffer, shift, wanted)
    equal = [at for at, byte in enumerate(content) if byte == wanted]
    assert [at for at in range(64) if mask >> at & 1] == equal
    assert lowest == (equal or [-1])[0]


@given(
    st.one_of(
        st.binary(max_size=50),
        st.text(max_size=50).map(str.encode),
        st.from_regex(r"[+-]?[0-9٣]{1,11}", fullmatch=True).map(str.encode),
    ),
    st.integers(0, 2**32 - 1),
)
def test_texts_are_hashed_and_read_as_java_does(content, seed):
    buffer = np.frombuffer(b"x" * 8 + content, np.uint8)
    assert device.text(buffer, 8, seed) == (
        java.utf8_string_hash(content, 0, len(content), seed),
        java.utf8_parse_int(content, 0, len(content)),
        zlib.crc32(content),
    )


@pytest.mark.parametrize("state", [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
def test_the_stored_hash_is_the_absolute_value_and_zero_for_the_smallest_int(state):
    signed = state - 2**32 if state >= 2**31 else state
    assert device.index_hash(state) == (0 if signed == -(2**31) else abs(signed))


def scan_of(buffer=b"x" * 100, rows=None, start=0, base_offset=0):
    rows = np.zeros(1, RECORD_DTYPE) if rows is None else rows
    return scan.scan(buffer, base_offset, start, 10**6, rows)


def entries_of(buffer, hashes):
    numbers = np.zeros(0, np.int64), np.zeros(0, np.int64)
    return scan.entries_of_rows(buffer, 0, np.zeros(0, RECORD_DTYPE), 0, hashes, *numbers)


def test_bytes_come_from_whatever_holds_bytes():
    with mmap.mmap(-1, 100) as mapped:
        for buffer in (
            bytes(100),
            bytearray(100),
            memoryview(bytes(100)),
            mapped,
            np.zeros(100, np.uint8),
        ):
            assert scan_of(buffer) == (0, 0, 3)
    assert scan_of(b"") == (0, 0, 3)


def closed_map():
    mapped = mmap.mmap(-1, 100)
    mapped.close()
    return mapped


def released_view():
    view = memoryview(bytes(100))
    view.release()
    return view


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros(100, np.int8),
        np.zeros(100, np.int64),
        np.zeros(100, bool),
        np.zeros((10, 10), np.uint8),
        np.zeros(200, np.uint8)[::2],
        np.zeros(100, np.uint8)[::-1],
        [1, 2, 3],
        "text",
        None,
        5,
        memoryview(bytes(800)).cast("q"),
        closed_map(),
        released_view(),
    ],
    ids=lambda buffer: f"{type(buffer).__name__} {getattr(buffer, 'dtype', '')}",
)
def test_bytes_of_another_type_or_order_or_closed_are_refused(buffer):
    with pytest.raises((TypeError, ValueError)):
        scan_of(buffer)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "hashes",
    [
        np.zeros(0, np.uint32),
        np.zeros(0, np.int64),
        np.zeros(0, np.float32),
        np.zeros(0, ">i4"),
        np.zeros(1, np.int32),
        read_only(np.zeros(0, np.int32)),
        b"",
    ],
    ids=str,
)
def test_outputs_of_another_type_order_or_length_are_refused(hashes):
    with pytest.raises((TypeError, ValueError)):
        entries_of(b"", hashes)


@pytest.mark.parametrize(
    "rows",
    [np.zeros(1, np.int64), np.zeros((1, 1), RECORD_DTYPE), read_only(np.zeros(1, RECORD_DTYPE))],
)
def test_rows_of_another_size_or_that_are_read_only_are_refused(rows):
    with pytest.raises((TypeError, ValueError)):
        scan_of(rows=rows)


@pytest.mark.parametrize(("start", "base_offset"), [(-1, 0), (101, 0), (0, -1), (0, 2**63 - 1)])
def test_positions_outside_are_refused(start, base_offset):
    with pytest.raises(ValueError, match="position"):
        scan_of(start=start, base_offset=base_offset)


def test_a_number_that_is_no_64_bit_integer_is_refused():
    for start in (2**63, -(2**63) - 1, "x", None):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            scan_of(start=start)


def test_a_buffer_is_let_go_after_a_call_and_after_a_refusal():
    buffer = bytearray(100)
    scan_of(buffer)
    with pytest.raises((TypeError, ValueError)):
        entries_of(buffer, np.zeros(1, np.int32))
    buffer.append(1)


def test_a_missing_or_foreign_extension_is_an_error_with_the_remedy(monkeypatch):
    monkeypatch.delattr(compiled, "scan")
    monkeypatch.setitem(sys.modules, f"{compiled.__name__}.scan", None)
    with pytest.raises(ImportError, match=r"install it again .*rocketlens; in a checkout: python"):
        importlib.reload(compiled)


@pytest.mark.skipif("asan" not in os.environ.get("LD_PRELOAD", ""), reason="make sanitize runs it")
def test_a_sanitizer_ends_a_process_that_reads_outside():
    program = (
        "from rocketlens.formats.compiled.device_check import read_outside\n"
        "print(read_outside(bytearray(b'ab' * 20), 10)); read_outside(bytearray(40), 60)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "1633837410\n"
    assert "heap-buffer-overflow" in done.stderr


REMEDY = "pip install --force-reinstall --no-deps rocketlens"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A copy of the package, and a function that runs the program in it."""
    root = tmp_path_factory.mktemp("installed")
    shutil.copytree(Path(rocketlens.__file__).parent, root / "rocketlens")

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "rocketlens", *words],
            env=os.environ | {"PYTHONPATH": str(root)},
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )

    return root / "rocketlens" / "formats" / "compiled", run


@pytest.mark.parametrize("content", [None, b"\xcf\xfa\xed\xfe of another machine"])
@pytest.mark.parametrize("name", ["scan", "index"])
@pytest.mark.parametrize("words", [["find", "--grep", "nowhere"], ["index", "build"]])
def test_one_sentence_says_what_to_install(installed, golden, name, content, words):
    folder, run = installed
    extension = folder / f"{name}.abi3.so"
    whole = extension.read_bytes()
    try:
        extension.unlink()
        if content is not None:
            extension.write_bytes(content)
        done = run(*words, "--store", golden("4.9.7").store)
    finally:
        extension.write_bytes(whole)
    assert done.returncode == 2
    assert REMEDY in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_entries_that_do_not_fit_are_refused():
    entries = IndexEntries.allocate(10)
    slots, body = np.zeros(40, np.uint8), np.zeros(20 * 10, np.uint8)
    for slot_count, first_entry in ((10, 1), (11, 1), (0, 1), (10, 0), (10, -5), (10, 2**31)):
        with pytest.raises(ValueError, match=r"bytes hold no|out of range"):
            index.build(*entries, first_entry, 0, slot_count, slots, body)
    with pytest.raises(ValueError, match="bytes hold no"):
        logs.check_index_file(slots, body, slot_count=10, last_entry=10)


def test_entries_whose_columns_differ_in_length_are_refused():
    whole = IndexEntries.allocate(10)
    slots, body = np.zeros(40, np.uint8), np.zeros(20 * 11, np.uint8)
    for name in ("hashes", "offsets", "timestamps"):
        entries = whole._replace(**{name: getattr(whole, name)[:9]})
        with pytest.raises(ValueError, match="differ in length"):
            index.build(*entries, 1, 0, 10, slots, body)


def test_more_bytes_than_an_arrow_array_holds_are_refused_before_they_are_copied():
    buffer = np.zeros(1 << 20, np.uint8)
    starts, lengths = np.zeros(2048, np.int64), np.full(2048, 1 << 20, np.int32)
    with pytest.raises(BadInput, match="gather fewer rows"):
        columns.gather(buffer, starts, lengths, as_text=False)


def test_a_start_or_offset_that_cannot_be_is_refused():
    rows = np.zeros(1, RECORD_DTYPE)
    buffer = np.zeros(100, np.uint8)
    for base_offset, start in ((0, -1), (0, 101), (-1, 0), (2**63 - 1, 0)):
        with pytest.raises(ValueError, match="is not in"):
            scan.scan(buffer, base_offset, start, 100, rows)
        with pytest.raises(ValueError, match="is not in"):
            scan.find_start(buffer, base_offset, start, 100)
        with pytest.raises(ValueError, match="is not in"):
            scan.walk(buffer, base_offset, start, 100)
    with pytest.raises(TypeError):
        scan.scan(np.zeros(100, np.int8), 0, 0, 100, rows)


def test_rows_of_another_buffer_are_refused():
    content = logs.raw_log(0, [{"properties_bytes": b"KEYS\1k\2TAGS\1t\2UNIQ_KEY\1u\2"}])
    buffer = logs.array(content)
    good, _ = logs.scan(buffer)
    for change in (
        {"physical_offset": -1},
        {"physical_offset": 1},
        {"physical_offset": -(2**63)},
        {"store_size": 2**31 - 1},
        {"store_size": -(2**31)},
        {"keys_length": 2**31 - 1},
        {"keys_start": -(2**31)},
        {"unique_key_start": 2**31 - 1},
        {"tags_start": 63},
        {"topic_length": -1},
        {"body_length": 2**31 - 1},
        {"properties_start": 0},
    ):
        rows = good.copy()
        for name, value in change.items():
            rows[name] = value
        changed = logs.of_log(buffer, 0, rows)
        for use in (
            lambda changed=changed: changed.index_entries(with_tags=True),
            changed.sound,
            changed.topics,
            changed.queue_names,
            lambda changed=changed: columns.key_slices(changed),
            lambda changed=changed: columns.property_slices(changed),
        ):
            with pytest.raises(BadInput):
                use()
    with pytest.raises(BadInput):
        columns.gather(buffer, np.array([-1]), np.array([1], np.int32), as_text=False)
    with pytest.raises(BadInput):
        columns.gather(buffer, np.array([len(buffer)]), np.array([1], np.int32), as_text=True)
    with pytest.raises(BadInput):
        columns.gather(buffer, np.array([0, 1]), np.array([1], np.int32), as_text=True)
