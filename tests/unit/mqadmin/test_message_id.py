"""decodeMessageId prints what RocketMQ's ``DecodeMessageIdCommond`` prints."""

from datetime import UTC, datetime

import pytest

from rocketlens.errors import BadInput
from rocketlens.main import main
from rocketlens.mqadmin.message_id import decoded

# The classes of 4.9.7 and 5.5.0 were run at about this time, in UTC; both printed this.
NOW_MS = round(datetime(2026, 11, 21, 8, 26, tzinfo=UTC).timestamp() * 1000)
PRINTED = {
    "AC1400020001A3B4C5D6123456780000": "ip=172.20.0.2date=2026-11-04#12:50:19:896",
    "ac1400020001a3b4c5d6123456780000": "ip=172.20.0.2date=2026-11-04#12:50:19:896",
    "0A0000091F4018B4AAC2140DD5A20000": "ip=10.0.0.9date=2026-11-04#21:27:30:978",
    "FD000000000000000000000000000002344C5FFD2B27678F4F770485": (
        "ip=fd00:0000:0000:0000:0000:0000:0000:0002date=2026-11-21#02:37:25:239"
    ),
    "AC1400020001A3B4C5D6FFFFFFFF0000": "ip=172.20.0.2date=2026-11-19#17:02:47:295",
    "AC1400020000CAC7000000000000AAB4": "ip=172.20.0.2date=2026-11-01#00:00:00:000",
}


@pytest.mark.parametrize("msg_id", PRINTED)
def test_an_id_is_decoded_as_the_real_class_decodes_it(zone, msg_id):
    zone("UTC")
    assert decoded(msg_id, NOW_MS) == PRINTED[msg_id]


def test_the_month_began_at_its_own_midnight_whatever_the_clocks_did_since(zone):
    zone("Europe/Berlin")
    # Summer time began on 29 March.
    now_ms = round(datetime(2026, 3, 30, 12, 0, tzinfo=UTC).timestamp() * 1000)
    assert (
        decoded(f"0A0000090000{0:08X}{1000:08X}0000", now_ms)
        == "ip=10.0.0.9date=2026-03-01#00:00:01:000"
    )


def test_it_asks_nobody_and_ends_no_line(monkeypatch, capsys):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert main(["mqadmin", "decodeMessageId", "-i", "0A0000091F4018B4AAC2140DD5A20000"]) == 0
    assert capsys.readouterr().out.startswith("ip=10.0.0.9date=")


@pytest.mark.parametrize("msg_id", ["XYZ", "AC14", "0" * 33, "G" * 32, ""])
def test_what_is_no_unique_key_is_refused(msg_id):
    with pytest.raises(BadInput, match="not a unique key"):
        decoded(msg_id, NOW_MS)
