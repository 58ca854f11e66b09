"""Text is told from other bytes, and its charset found."""

import pytest

from rocketlens.decode.plain_text import find_text
from tests.support.written_bodies import body

CHINESE = "订单已支付,等待发货。"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", ("", "utf-8")),
        (b"plain", ("plain", "utf-8")),
        ("王小明 😀".encode(), ("王小明 😀", "utf-8")),
        (b"\xef\xbb\xbfa", ("a", "utf-8")),
        ("a王".encode("utf-16"), ("a王", "utf-16")),
        ("a王".encode("utf-32"), ("a王", "utf-32")),
        (b"\x1b[31mred\x1b[0m\r\n", ("\x1b[31mred\x1b[0m\r\n", "utf-8")),
        (CHINESE.encode("gb18030"), (CHINESE, "gb18030")),
        (body("text.gbk"), (CHINESE, "gb18030")),
    ],
)
def test_text_is_found_with_its_charset(data, found):
    assert find_text(data) == found


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02",
        b"\x08\x96\x01",
        b"caf\xe9",
        b"\xff\xfe\x00",
        "囍鑫龘".encode("gb18030") + b"\x01",
        bytes(range(0x81, 0xFF)),
        body("order.java-object"),
        body("order.messagepack"),
        body("record.avro"),
    ],
)
def test_other_bytes_are_no_text(data):
    assert find_text(data) is None
