"""JSON in a body.

A module of its own, as every format of bodies.
"""

import json
import re
from typing import Final

from rocketlens import limits
from rocketlens.decode.tree import Tree, tree_of
from rocketlens.errors import BodyError, BodyTooLarge

_BEGINS: Final = re.compile(r'[ \t\r\n]*[\[{"]')
_DECODER: Final = json.JSONDecoder(strict=False)


def read_json(text: str) -> Tree:
    """Return the value of a JSON text; of names that come twice the last counts.

    :raises BodyTooLarge: when it is nested too deep, or has too many values.
    :raises BodyError: when it is not JSON, or has numbers of thousands of digits.
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise BodyTooLarge("JSON that is nested too deep") from None
    except ValueError as error:
        raise BodyError(f"it is not JSON: {error}") from error
    # Looking at every value takes longer than reading them. A text with few signs cannot be beyond
    # the bounds; what is deeper could not be written again.
    opened = text.count("{") + text.count("[")
    if opened > limits.MAX_DECODED_LEVELS or len(text) > limits.MAX_DECODED_VALUES:
        return tree_of(value, str)
    return value


def may_be_json(text: str) -> bool:
    """Return whether text begins as an object, an array or a string does.

    A number alone is JSON, too, and is as well shown as the text that it is.
    """
    return _BEGINS.match(text) is not None
