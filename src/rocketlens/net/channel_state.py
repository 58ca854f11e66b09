"""The states of one connection, and what changes them: a table, and the only one there is.

===============  ==================================================================================
state            the connection
===============  ==================================================================================
CONNECTING       has no socket yet
NEW              is open, and has had no turn: what comes starts its first, if there is time
LIGHT            handled all it had sent in its last turn: what comes starts a turn at once
HEAVY            had something left after its last turn: what comes starts a turn if there is time
TURN             has its turn: requests are handled, and responses are joined until it ends
NEW_WAITS        waits for its first turn, among other new ones; what comes is kept as bytes
WAITS            waits for its next turn; what comes is kept as bytes
STOPPED          is being closed by this end: requests are not handled any more, but answered
STOPPED_WAITS    the same, and answers wait for a turn
CLOSED           is forgotten
===============  ==================================================================================

===============  ==================================================================================
step             what happened
===============  ==================================================================================
OPENED           it has a socket
BEGIN            there are requests, and it is their turn
EMPTY            there is nothing to handle, or nothing left
CUT              something is left after a turn: the time was over, or the peer does not read
WAIT             it is queued for its next turn
CALL             the group calls it for that turn
STOP             this end stops reading
END              it is closed, and nothing of it is to be handled
===============  ==================================================================================

A step that is not in the row of a state is a defect, and raises KeyError.
"""

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """The state of a connection; see the table above."""

    CONNECTING = 0
    NEW = 1
    LIGHT = 2
    HEAVY = 3
    TURN = 4
    NEW_WAITS = 5
    WAITS = 6
    STOPPED = 7
    STOPPED_WAITS = 8
    CLOSED = 9


class Step(IntEnum):
    """An event that changes the state of a connection; see the table above."""

    OPENED = 0
    BEGIN = 1
    EMPTY = 2
    CUT = 3
    WAIT = 4
    CALL = 5
    STOP = 6
    END = 7


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
