"""Offset message ids and unique keys."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from rocketlens.errors import BadInput
from rocketlens.model import message_id
from rocketlens.model.message import Host
from rocketlens.model.message_id import (
    OffsetMessageId,
    UniqueKey,
    month_start_ms,
    nearly_message_id,
)

SHANGHAI = timezone(timedelta(hours=8))
HOSTILE = [
    *["", " ", "0", "A" * 31, "A" * 33, "A" * 55, "A" * 57, "A" * 64, "A" * 1_000_000],
    *["G" * 32, "0" * 31 + " ", " " + "0" * 31, "0x" + "0" * 30, "-" + "0" * 31, "+" * 56],
    *["\x00" * 32, "\n" * 32, "٣" * 32, "０" * 32, "😀" * 16, "😀" * 32, "é" * 56, "\udc80" * 32],
    *["0_" * 16, "0 " * 16, "%RETRY%golden_cg", "ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff"],
]


def epoch_ms(*parts, zone=UTC):
    return round(datetime(*parts, tzinfo=zone).timestamp() * 1000)


# Both as MessageDecoder.createMessageId of RocketMQ 5.5.0 writes them.
@pytest.mark.parametrize(
    ("text", "host", "physical_offset"),
    [
        ("0A00000500002A9F0000000000004010", Host("10.0.0.5", 10911), 0x4010),
        (
            "20010DB80000000000000000000000010000FFFF7FFFFFFFFFFFFFFF",
            Host("2001:db8::1", 65535),
            2**63 - 1,
        ),
    ],
)
def test_an_offset_message_id_is_read_in_either_case_and_written_in_upper_case(
    text, host, physical_offset
):
    expected = OffsetMessageId(host, physical_offset)
    assert OffsetMessageId.decode(text) == expected
    assert OffsetMessageId.decode(text.lower()) == expected
    assert expected.encode() == text


@pytest.mark.parametrize("kind", [OffsetMessageId, UniqueKey])
@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_is_no_id_is_one_clear_line(kind, text):
    with pytest.raises(BadInput) as caught:
        kind.decode(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("kind", [OffsetMessageId, UniqueKey])
def test_every_prefix_of_an_id_is_refused(kind):
    for text in ("0A00000500002A9F0000000000004010", "0A" + "0" * 54):
        for length in range(len(text)):
            if length != 32:
                with pytest.raises(BadInput):
                    kind.decode(text[:length])


def test_each_changed_character_changes_exactly_the_part_it_is_in():
    good = OffsetMessageId(Host("10.0.0.5", 10911), 0x4010)
    text = good.encode()
    for position in range(32):
        changed = text[:position] + ("1" if text[position] != "1" else "2") + text[position + 1 :]
        if 8 <= position < 12:
            with pytest.raises(BadInput, match="its port would be"):
                OffsetMessageId.decode(changed)
            continue
        read = OffsetMessageId.decode(changed)
        differing = (
            read.store_host.address != good.store_host.address,
            read.store_host.port != good.store_host.port,
            read.physical_offset != good.physical_offset,
        )
        assert differing == (position < 8, 8 <= position < 16, position >= 16)


def test_a_unique_key_is_no_offset_message_id_unless_its_process_is_zero():
    key = UniqueKey("10.0.0.5", 7, 0x12345678, 1000, 1).encode()
    with pytest.raises(BadInput, match="its port would be"):
        OffsetMessageId.decode(key)
    zero = UniqueKey("10.0.0.5", 0, 0x2A9F0000, 1000, 1).encode()
    assert OffsetMessageId.decode(zero).store_host == Host("10.0.0.5", 10911)


def test_a_negative_offset_is_refused():
    with pytest.raises(BadInput, match="offset would be negative"):
        OffsetMessageId.decode("0A00000500002A9F8000000000000000")


@pytest.mark.parametrize(
    "value",
    [
        OffsetMessageId(Host("10.0.0.5", 65536), 0),
        OffsetMessageId(Host("10.0.0.5", -1), 0),
        OffsetMessageId(Host("10.0.0.5", 1), -1),
        OffsetMessageId(Host("10.0.0.5", 1), 2**63),
        OffsetMessageId(Host("broker-a", 1), 0),
        OffsetMessageId(Host("", 1), 0),
        UniqueKey("10.0.0.5", 65536, 0, 0, 0),
        UniqueKey("10.0.0.5", 0, -1, 0, 0),
        UniqueKey("10.0.0.5", 0, 0, 2**32, 0),
        UniqueKey("10.0.0.5", 0, 0, 0, 65536),
        UniqueKey("10.0.0.256", 0, 0, 0, 0),
    ],
)
def test_parts_that_do_not_fit_are_refused_not_written(value):
    with pytest.raises(BadInput):
        value.encode()


# Made by MessageClientIDSetter.createUniqID of RocketMQ 5.5.0, process 29139, in these zones.
JAVA_MADE = [
    ("FD00000000000000000000000000000271D35FFD2B27684F3AE90000", 1795241222889, UTC),
    ("FD00000000000000000000000000000271D35FFD2B27684F3B0B0001", 1795241222923, UTC),
]


@pytest.mark.parametrize(("text", "made_ms", "zone"), JAVA_MADE)
def test_a_unique_key_is_made_as_rocketmq_makes_it(text, made_ms, zone):
    made = UniqueKey.at(
        made_ms,
        "fd00::2",
        process_id=29139,
        client_hash=0x5FFD2B27,
        counter=int(text[-4:], 16),
        zone=zone,
    )
    assert made.encode() == text
    assert UniqueKey.decode(text.lower()) == made
    assert made.nearly_time_ms(made_ms + 1, zone) == made_ms


def test_a_unique_key_of_ipv4_is_made_from_its_parts():
    made = UniqueKey("10.0.0.5", 0x0102, 0xA1B2C3D4, 0x05060708, 0x090A)
    assert made.encode() == "0A0000050102A1B2C3D405060708090A"
    assert UniqueKey.decode(made.encode()) == made


def make(now_ms, **options):
    parts = {"process_id": 1, "client_hash": 2, "counter": 3} | options
    return UniqueKey.at(now_ms, "10.0.0.5", **parts)


def test_the_low_bits_of_process_hash_and_counter_count():
    made = make(0, process_id=4_194_303, client_hash=-2, counter=65536 + 5)
    assert (made.process_number, made.client_hash, made.counter) == (0xFFFF, 0xFFFFFFFE, 5)
    assert UniqueKey.decode(made.encode()) == made


def test_a_key_counts_from_the_month_of_its_zone():
    now_ms = epoch_ms(2026, 11, 1, 4, 0, 0)
    assert make(now_ms).month_millis == 4 * 3_600_000
    assert make(now_ms, zone=SHANGHAI).month_millis == 12 * 3_600_000
    last_of_october = epoch_ms(2026, 10, 31, 17, 0, 0)
    assert make(last_of_october, zone=SHANGHAI).month_millis == 3_600_000
    assert month_start_ms(last_of_october, SHANGHAI) == epoch_ms(2026, 11, 1, zone=SHANGHAI)


def test_the_time_exceeds_31_bits_late_in_the_month_and_is_read_unsigned():
    now_ms = epoch_ms(2026, 10, 31, 23, 59, 59)
    made = make(now_ms)
    assert made.month_millis > 2**31
    assert UniqueKey.decode(made.encode()).nearly_time_ms(now_ms + 1) == now_ms


@pytest.mark.parametrize(
    ("behind_ms", "month_millis"),
    [(0, 0), (1, 0), (999_999, 0), (1_000_000, 2**32 - 1_000_000), (1_000_001, 2**32 - 1_000_001)],
)
def test_a_clock_set_back_before_the_month_counts_as_its_start_for_1000_seconds(
    behind_ms, month_millis
):
    start_ms = epoch_ms(2026, 11, 1)
    assert make(start_ms - behind_ms, counted_from_ms=start_ms).month_millis == month_millis


# What MessageClientIDSetter.getNearlyTimeFromID of RocketMQ 5.5.0 said.
JAVA_READ = [
    ("0A0000050102A1B2C3D4000000000001", "UTC", 1795241222913, 1793491200000),
    ("0A0000050102A1B2C3D4FFFFFFFF0001", "UTC", 1795241222921, 1795107767295),
    ("0A0000050102A1B2C3D47FFFFFFF0001", "UTC", 1795241222922, 1792960283647),
    ("0A0000050102A1B2C3D4000000000001", "Asia/Shanghai", 1795241222923, 1793462400000),
    ("0A0000050102A1B2C3D4FFFFFFFF0001", "Asia/Shanghai", 1795241222923, 1795078967295),
    ("0A0000050102A1B2C3D4000000000001", "America/New_York", 1795241222926, 1793505600000),
    ("0A0000050102A1B2C3D4FFFFFFFF0001", "America/New_York", 1795241222926, 1795122167295),
    ("0A0000050102A1B2C3D47FFFFFFF0001", "America/New_York", 1795241222926, 1792974683647),
    (JAVA_MADE[1][0], "Asia/Shanghai", 1795241222923, 1795212422923),
    (JAVA_MADE[1][0], "America/New_York", 1795241222926, 1792577222923),
]


@pytest.mark.parametrize(("text", "zone", "now_ms", "expected_ms"), JAVA_READ)
def test_the_time_of_a_key_is_guessed_as_rocketmq_guesses_it(text, zone, now_ms, expected_ms):
    try:
        reader_zone = ZoneInfo(zone)
    except ZoneInfoNotFoundError:
        pytest.skip("no time zone data; install tzdata")
    assert UniqueKey.decode(text).nearly_time_ms(now_ms, reader_zone) == expected_ms


def test_a_guess_is_never_in_the_future_and_goes_to_december_from_january():
    now_ms = epoch_ms(2027, 1, 1, 0, 0, 5)
    assert make(now_ms - 10_000).nearly_time_ms(now_ms) == now_ms - 10_000
    assert make(now_ms).nearly_time_ms(now_ms) == epoch_ms(2026, 12, 1, 0, 0, 5)


@pytest.mark.parametrize(
    ("address", "packed"),
    [
        *[("0.0.0.0", bytes(4)), ("255.255.255.255", b"\xff" * 4), ("::", bytes(16))],
        *[("::1", bytes(15) + b"\1"), ("2001:db8::1", bytes.fromhex("20010db8" + "0" * 23 + "1"))],
    ],
)
def test_addresses_pack_to_their_bytes_and_back(address, packed):
    assert message_id.pack_address(address) == packed
    assert message_id.address_text(packed) == address


@pytest.mark.parametrize(
    "address", ["", "1.2.3", "1.2.3.4.5", "01.2.3.4", "host", "::g", "[::1]", "1.2.3.4:1"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(BadInput, match="is not an IPv4 or IPv6 address"):
        message_id.pack_address(address)


AN_ID = "0A00000500002A9F0000000000004010"


@pytest.mark.parametrize("length", [32, 56])
def test_an_id_with_a_digit_missing_or_too_many_is_recognized(length):
    text = AN_ID + "0" * (length - 32)
    assert nearly_message_id(text[1:]) == (length - 1, length, (), None)
    assert nearly_message_id(text.lower() + "0") == (length + 1, length, (), None)


def test_an_id_with_letters_that_look_like_digits_is_recognized_and_mended():
    nearly = nearly_message_id(AN_ID[:-2] + "lO")
    assert nearly.letters == (("l", "1"), ("O", "0"))
    assert nearly.meant == AN_ID


@pytest.mark.parametrize(
    "text",
    [
        *[AN_ID, AN_ID.lower(), AN_ID[2:], AN_ID + "00", AN_ID[:-1] + "g", AN_ID[:-1] + " "],
        # A letter for a digit and a digit missing are two mistakes.
        AN_ID[1:].replace("1", "l"),
        # Numbers of orders and payments.
        *["2" * 31, "2" * 33, "2026112322001" + "O" * 19],
        *(each for each in HOSTILE if len(each) not in {31, 33, 55, 57}),
    ],
)
def test_what_is_an_id_or_unlike_one_is_not_taken_for_a_mistake(text):
    assert nearly_message_id(text) is None
