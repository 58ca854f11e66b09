"""What the kernels refuse: arguments are checked before compiled code reads with them."""

import numpy as np
import pytest

from rocketlens.errors import BadInput
from rocketlens.formats.compiled import kernels
from tests.unit.formats import kernel_logs as logs


def test_entries_that_do_not_fit_are_refused():
    entries = kernels.EntryArrays.allocate(10)
    slots, body = np.zeros(40, np.uint8), np.zeros(20 * 10, np.uint8)
    for slot_count, first_entry, slot_range in (
        (10, 1, None),
        (11, 1, None),
        (0, 1, None),
        (10, 0, None),
        (10, -5, None),
        (10, 2**31, None),
        (10, 1, (0, 11)),
        (10, 1, (5, 4)),
        (10, 1, (-1, 4)),
    ):
        with pytest.raises(ValueError, match=r"bytes hold no|out of range"):
            kernels.build_index_file(
                entries,
                slots,
                body,
                slot_count=slot_count,
                begin_timestamp_ms=0,
                first_entry=first_entry,
                slot_range=slot_range,
            )
    with pytest.raises(ValueError, match="bytes hold no"):
        logs.check_index_file(slots, body, slot_count=10, last_entry=10)


def test_entries_whose_columns_differ_in_length_are_refused():
    whole = kernels.EntryArrays.allocate(10)
    slots, body = np.zeros(40, np.uint8), np.zeros(20 * 11, np.uint8)
    for name in ("hashes", "offsets", "timestamps"):
        entries = whole._replace(**{name: getattr(whole, name)[:9]})
        with pytest.raises(ValueError, match="differ in length"):
            kernels.build_index_file(
                entries, slots, body, slot_count=10, begin_timestamp_ms=0, first_entry=1
            )


def test_more_bytes_than_an_arrow_array_holds_are_refused_before_they_are_copied():
    buffer = np.zeros(1 << 20, np.uint8)
    starts, lengths = np.zeros(2048, np.int64), np.full(2048, 1 << 20, np.int32)
    with pytest.raises(BadInput, match="gather fewer rows"):
        kernels.gather(buffer, starts, lengths, as_text=False)


def test_a_start_or_offset_that_cannot_be_is_refused():
    rows = np.zeros(1, kernels.RECORD_DTYPE)
    buffer = np.zeros(100, np.uint8)
    for base_offset, start in ((0, -1), (0, 101), (-1, 0), (2**63 - 1, 0)):
        with pytest.raises(ValueError, match="is not in"):
            kernels.scan_records(buffer, base_offset, start, 100, rows)
        with pytest.raises(ValueError, match="is not in"):
            kernels.find_record(buffer, base_offset, start, 100)
        with pytest.raises(ValueError, match="is not in"):
            kernels.walk_to(buffer, base_offset, start, 100)
    with pytest.raises(TypeError):
        kernels.scan_records(np.zeros(100, np.int8), 0, 0, 100, rows)


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
        for use in (
            lambda rows=rows: kernels.index_entries(buffer, 0, rows, with_tags=True),
            lambda rows=rows: kernels.crc_ok(buffer, 0, rows),
            lambda rows=rows: kernels.group_rows(buffer, 0, rows, by_queue=True),
            lambda rows=rows: kernels.key_slices(buffer, 0, rows),
            lambda rows=rows: kernels.property_slices(buffer, 0, rows),
        ):
            with pytest.raises(BadInput):
                use()
    with pytest.raises(BadInput):
        kernels.gather(buffer, np.array([-1]), np.array([1], np.int32), as_text=False)
    with pytest.raises(BadInput):
        kernels.gather(buffer, np.array([len(buffer)]), np.array([1], np.int32), as_text=True)
    with pytest.raises(BadInput):
        kernels.gather(buffer, np.array([0, 1]), np.array([1], np.int32), as_text=True)
