"""The states of a connection, and the steps that change them.

A connection whose last turn handled everything starts the next turn at once when bytes arrive
(LIGHT). Others do so only if this turn of the event loop has time left (NEW, HEAVY). A step that is
not in a state's row is a defect, and raises KeyError.
"""

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """The state of a connection."""

    CONNECTING = 0  # no socket yet
    NEW = 1  # open, before its first turn
    LIGHT = 2  # handled everything in its last turn
    HEAVY = 3  # had requests left after its last turn
    TURN = 4  # requests are handled, and responses are joined until the turn ends
    NEW_WAITS = 5  # waits for its first turn, among other new ones; new bytes are kept
    WAITS = 6  # waits for its next turn; new bytes are kept
    STOPPED = 7  # being closed by this end: no requests are handled, handled ones are answered
    STOPPED_WAITS = 8  # the same, and answers wait for a turn
    CLOSED = 9


class Step(IntEnum):
    """An event that changes the state of a connection."""

    OPENED = 0  # it has a socket
    BEGIN = 1  # its turn starts, with requests
    EMPTY = 2  # no requests are left
    CUT = 3  # requests are left: the time was over, or the peer does not read
    WAIT = 4  # it is queued for its next turn
    CALL = 5  # the group starts that turn
    STOP = 6  # this end stops reading
    END = 7  # it is closed, and its remaining requests are dropped


CONNECTING, NEW, LIGHT, HEAVY, TURN, NEW_WAITS, *_others = State
WAITS, STOPPED, STOPPED_WAITS, CLOSED = _others
OPENED, BEGIN, EMPTY, CUT, WAIT, CALL, STOP, END = Step

NEXT: Final[dict[State, dict[Step, State]]] = {
    CONNECTING: {OPENED: NEW, STOP: CLOSED, END: CLOSED},
    NEW: {BEGIN: TURN, EMPTY: NEW, WAIT: NEW_WAITS, STOP: STOPPED, END: CLOSED},
    LIGHT: {BEGIN: TURN, EMPTY: LIGHT, WAIT: WAITS, STOP: STOPPED, END: CLOSED},
    HEAVY: {BEGIN: TURN, EMPTY: LIGHT, WAIT: WAITS, STOP: STOPPED, END: CLOSED},
    TURN: {EMPTY: LIGHT, CUT: HEAVY, STOP: STOPPED, END: CLOSED},
    NEW_WAITS: {CALL: NEW, STOP: STOPPED_WAITS, END: CLOSED},
    WAITS: {CALL: HEAVY, STOP: STOPPED_WAITS, END: CLOSED},
    STOPPED: {EMPTY: STOPPED, CUT: STOPPED, WAIT: STOPPED_WAITS, STOP: STOPPED, END: CLOSED},
    STOPPED_WAITS: {CALL: STOPPED, STOP: STOPPED_WAITS, END: CLOSED},
    CLOSED: dict.fromkeys(Step, CLOSED),
}

OPEN: Final = frozenset({NEW, LIGHT, HEAVY, TURN, NEW_WAITS, WAITS, STOPPED, STOPPED_WAITS})
QUEUED: Final = frozenset({NEW_WAITS, WAITS, STOPPED_WAITS})
"""Open, and waiting for a turn."""
