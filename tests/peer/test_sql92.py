"""SQL92 expressions, judged by the classes of RocketMQ's that evaluate them."""

from pathlib import Path

import pytest

from tests.peer.rocketmq_peer import VERSIONS
from tests.support.sql92_cases import by_where, cases, lines_of, ours

JUDGE = Path(__file__).parent / "java" / "Sql92Judge.java"
SEED = 20_221_122
SINCE_5 = ("CONTAINS", "STARTSWITH", "ENDSWITH")


@pytest.mark.parametrize("version", VERSIONS)
def test_expressions_mean_what_they_mean_to_rocketmq(peer, tmp_path, version):
    some = cases(SEED, 3_000)
    if version == "4.9.7":
        some = [case for case in some if not any(word in case[0].upper() for word in SINCE_5)]
    file = tmp_path / "cases.txt"
    file.write_text(lines_of(some))
    theirs = peer.java(version, JUDGE, str(file)).splitlines()
    differing = [
        (case, their, ours(*case))
        for case, their in zip(some, theirs, strict=True)
        if their != ours(*case)
    ]
    assert differing == []
    # The language of filters has the same meaning; conditions that are not TRUE end it earlier.
    others = {"false": "not true", "null": "not true"}
    by_filter = [
        (case, their, by_where(*case))
        for case, their in zip(some, theirs, strict=True)
        if by_where(*case) not in {their, others.get(their)}
        and not (their == "error" and by_where(*case) == "not true" and "AND" in case[0].upper())
    ]
    assert by_filter == []
    assert set(theirs) == {"invalid", "error", "true", "false", "null"}
