import pytest

from rocketlens.wire.command import ONE_WAY_FLAG, RESPONSE_FLAG, RemotingCommand


@pytest.mark.parametrize("other_bits", [0, 4, -(2**31)])
def test_the_lowest_two_bits_of_the_flag_tell_responses_and_one_way_requests(other_bits):
    request = RemotingCommand(10, flag=other_bits)
    assert (request.is_response, request.is_one_way) == (False, False)
    response = RemotingCommand(0, flag=other_bits | RESPONSE_FLAG)
    assert (response.is_response, response.is_one_way) == (True, False)
    one_way = RemotingCommand(10, flag=other_bits | ONE_WAY_FLAG)
    assert (one_way.is_response, one_way.is_one_way) == (False, True)
    assert (RESPONSE_FLAG, ONE_WAY_FLAG) == (1, 2)
