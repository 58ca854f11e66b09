"""Name servers, as they are given."""

import pytest

from rocketlens.client.connect.cluster import name_server_addresses
from rocketlens.errors import BadInput


def test_several_name_servers_are_read_in_any_usual_form():
    assert name_server_addresses("a:1; b:2;;http://c:3,a:1") == ("a:1", "b:2", "c:3")
    assert name_server_addresses(["a:1", "b:2"]) == ("a:1", "b:2")
    with pytest.raises(BadInput):
        name_server_addresses("a")
