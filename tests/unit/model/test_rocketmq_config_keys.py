"""What becomes of configuration keys without a meaning here; see also broker/test_config."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.model.rocketmq_config_keys import check_unknown_keys


def test_a_key_in_no_table_is_refused_when_it_looks_like_one():
    with pytest.raises(
        BadInput, match=r"x\.conf: counts is not a key of RocketMQ; did you mean count"
    ):
        check_unknown_keys({"counts": "1"}, ["count"], "x.conf")
    assert check_unknown_keys({"zzz": "1", "aclEnable": "false"}, ["count"], "x.conf") == (
        "aclEnable",
        "zzz",
    )
