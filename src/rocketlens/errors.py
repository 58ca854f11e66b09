"""Every error this package raises on purpose, as one tree.

::

    RocketLensError
    ├── BadInput              what the caller gave cannot be used; says what, and what would do
    │   ├── WrongType         an argument of a type that cannot be used; a TypeError, too
    │   ├── MessageIllegal    a message that RocketMQ would not store
    │   └── AddressNotAllowed an address that neither configuration nor route has named
    ├── FormatError           bytes that are not what their format says
    │   ├── RecordError       a commit log record (``reason``, ``physical_offset``)
    │   ├── BodyError         a message body that cannot be decompressed or decoded
    │   │   └── BodyTooLarge  it is, or would grow, beyond a bound: of bytes, values or levels
    │   ├── IndexFileError    an index file
    │   ├── CheckpointError   a checkpoint
    │   └── ConfigError       a config/*.json file, or an option taken from one
    ├── ProtocolError         what the other end of a connection sent (``closes``)
    │   ├── FrameError        lengths that cannot be; the connection must be closed
    │   ├── HeaderError       a header that is not what its codec says; likewise
    │   ├── FieldError        a header field that is missing, or not of its type (``field``)
    │   └── CommandBodyError  a command's JSON body
    ├── StoreError            a store directory as a whole
    │   ├── NotAStore         there is no commit log in it
    │   ├── StoreLocked       another process owns it
    │   ├── StoreChanged      it changed under an operation that needed it to stand still
    │   ├── StoreFull         no room for another record now; reads go on, and sends once there is
    │   ├── StoreBusy         a file cannot be opened now; reads go on, and sends once it can be
    │   ├── StoreFailed       a write or sync failed: nothing is stored any more, reads go on
    │   └── CopyFailed        a broker's log cannot be copied, or not into this store
    ├── ArchiveError          an archive that cannot be read or written as a whole
    │   └── ArchiveTaken      another archiver writes to it, and was faster
    ├── RemotingError         a call to another process that brought no answer (``address``)
    │   ├── ConnectFailed     connection refused; nothing was sent
    │   ├── ConnectionLost    the connection ended before the answer came
    │   ├── CallTimeout       the answer did not come in time
    │   └── BadAnswer         what came as an answer cannot be read
    ├── BrokerError           a broker or name server answered that it will not (``address``)
    ├── TopicNotFound         no broker, or nothing in a store, knows the topic
    ├── SendFailed            no attempt to send was acknowledged (``attempts``)
    ├── ReplyTimeout          a request was sent, and no reply came (``topic``, ``correlation_id``)
    ├── MessageNotFound       everything was searched, and the message is not there
    ├── AnswerIncomplete      not found, but something could not be searched (``answer``)
    ├── WrongUse              an object used after it was closed, or in another event loop
    ├── PackageMissing        an optional package is not installed; an ImportError, too
    └── SparkUnavailable      no usable JDK or PySpark on this machine

``MessageNotFound`` and ``AnswerIncomplete`` are kept apart on purpose: the first is a fact about
the store, the second is not. Neither is a subclass of the other, so that code which handles "not
there" never takes "could not look" for it.

``code`` is the RocketMQ response code a broker would give for the error, where there is one, and
``retriable`` says whether the same call can succeed later without anything being mended.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketlens.model.answer import Answer


class RocketLensError(Exception):
    """Base of all errors of this package. Its text is one line, fit for a user."""

    code: int | None = None
    retriable: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle the text and attributes, whatever arguments the class takes."""
        reduced = super().__reduce__()
        assert isinstance(reduced, tuple)  # noqa: S101 - only other classes return a name
        _, args, *state = reduced
        return (_restored, (type(self), args), *state)


def _restored(error_class: type[RocketLensError], args: tuple[object, ...]) -> RocketLensError:
    error = error_class.__new__(error_class)
    error.args = args
    return error


class BadInput(RocketLensError, ValueError):
    """An argument that cannot be used: the text names it and says what would do."""

    code = 29


class WrongType(BadInput, TypeError):
    """An argument of a type that cannot be used: the text says which types can."""


class MessageIllegal(BadInput):
    """A message that RocketMQ would not store: too large, or a topic that it would refuse."""

    code = 13


class AddressNotAllowed(BadInput):
    """An address that neither configuration nor route has named: it is never dialled."""


class FormatError(RocketLensError, ValueError):
    """Bytes that are not what their format says."""


class RecordError(FormatError):
    """A commit log record that cannot be believed.

    ``reason`` is one of the words in :class:`rocketlens.formats.commitlog_record.Reason`;
    ``physical_offset`` is where in the log it was looked for, when that is known.
    """

    code = 1

    def __init__(self, reason: str, detail: str, physical_offset: int | None = None) -> None:
        """Keep the parts, so that callers can tell a torn record from a corrupt one."""
        where = "" if physical_offset is None else f" at physical offset {physical_offset}"
        super().__init__(f"record{where}: {detail}")
        self.reason = reason
        self.physical_offset = physical_offset


class BodyError(FormatError):
    """A message body that cannot be decompressed or decoded."""


class BodyTooLarge(BodyError):
    """A message body that is, or would grow, beyond a bound: of bytes, values or levels."""


class IndexFileError(FormatError):
    """An index file whose header, size or chains contradict each other or the log."""


class CheckpointError(FormatError):
    """A checkpoint too short to hold its fields."""


class ConfigError(FormatError):
    """A ``config/*.json`` file that is not JSON in either of RocketMQ's dialects."""


class ProtocolError(RocketLensError, ValueError):
    """The other end of a connection sent something else than RocketMQ's remoting protocol.

    ``closes`` says whether the connection is lost with it: after a bad frame or header the
    begin of the next frame is unknown, and RocketMQ closes, too. Otherwise the request is answered
    with ``code`` and ``remark``, and the connection stays open.
    """

    code = 1
    closes: ClassVar[bool] = True

    @property
    def remark(self) -> str:
        """The text that a server answers with."""
        return str(self)


class FrameError(ProtocolError):
    """A frame whose lengths cannot be, or are over the limit."""


class HeaderError(ProtocolError):
    """A command's header that its codec cannot read."""


class FieldError(ProtocolError):
    """A field of a command's header that is missing, or not of its type.

    ``field`` is its name on the wire; ``java`` begins as RocketMQ's own remark would.
    """

    closes = False

    def __init__(self, field: str, java: str) -> None:
        """Store the field's name."""
        super().__init__(java)
        self.field = field


class CommandBodyError(ProtocolError):
    """A command's JSON body that cannot be read, or lacks what it must have."""

    closes = False


class StoreError(RocketLensError):
    """A store directory that cannot be used as a whole."""


class NotAStore(StoreError):
    """The directory holds no commit log."""


class StoreLocked(StoreError):
    """Another process, a broker or a job of ours, owns the store."""

    retriable = True


class StoreChanged(StoreError):
    """The store changed under an operation that needed it to stand still."""

    retriable = True


class StoreFull(StoreError):
    """There is no room for another record now; reads go on, and so do sends once there is."""

    code = 14
    retriable = True


class StoreBusy(StoreError):
    """A file of the store cannot be opened, or has no memory, now; the next call may succeed."""

    code = 14
    retriable = True


class StoreFailed(StoreError):
    """A write or sync failed, so nothing more is stored or acknowledged until a restart.

    What the disk holds after a failed sync is unknown, so a second try that succeeds proves
    nothing. Reads go on.
    """

    code = 14


class CopyFailed(StoreError):
    """A broker's log cannot be copied, or not into this store; the text says what to do."""


class ArchiveError(RocketLensError):
    """An archive that cannot be read or written as a whole."""


class ArchiveTaken(ArchiveError):
    """Another archiver has added the same messages meanwhile: nothing was added twice."""

    retriable = True


class RemotingError(RocketLensError):
    """A call to another process that brought no answer; ``address`` is where it went.

    Whether the request was carried out there is unknown, except after :class:`ConnectFailed`.
    """

    retriable = True

    def __init__(self, address: str, text: str) -> None:
        """Store the address, with which the text begins."""
        super().__init__(f"{address}: {text}")
        self.address = address


class ConnectFailed(RemotingError):
    """The connection was refused, or not accepted in time; nothing was sent."""


class ConnectionLost(RemotingError):
    """The connection ended before the answer came."""


class CallTimeout(RemotingError, TimeoutError):
    """The answer did not come in time."""


class BadAnswer(RemotingError):
    """An answer cannot be read: the other end is perhaps not a RocketMQ server.

    ``request`` says what it was asked, ``reason`` what is wrong with the answer.
    """

    def __init__(self, address: str, request: str, reason: str) -> None:
        """Store what was asked, and what came."""
        super().__init__(
            address,
            f"its answer to {request} cannot be read ({reason}): make sure that this is the "
            "address of a RocketMQ server, 4.x or 5.x",
        )
        self.request = request
        self.reason = reason


class BrokerError(RocketLensError):
    """A broker or name server answered, and what it said is that it will not.

    ``code`` and ``remark`` are its own; ``address`` is where it was asked.
    """

    def __init__(self, address: str, code: int, remark: str | None, *, retriable: bool) -> None:
        """Keep the parts; the text is one line, whatever the remark has."""
        text = " ".join((remark or "no reason given").split())
        super().__init__(f"{address}: code {code}: {text}")
        self.address = address
        self.code = code
        self.remark = remark
        self.retriable = retriable


class TopicNotFound(RocketLensError, LookupError):
    """No broker that the name servers know has the topic (or would take it).

    For a store: neither its files nor any record of its log name the topic.
    """

    code = 17


class SendFailed(RocketLensError):
    """No attempt to send was acknowledged; ``attempts`` has each broker's name, and the error.

    A message may be stored all the same: only after :class:`ConnectFailed` or a
    :class:`BrokerError` it surely is not. Sent again it keeps its unique key.
    """

    retriable = True

    def __init__(self, text: str, attempts: "Sequence[tuple[str, RocketLensError]]") -> None:
        """Store the attempts; ``code`` is that of the last that has one."""
        super().__init__(text)
        self.attempts = tuple(attempts)
        codes = [error.code for _, error in self.attempts if error.code is not None]
        self.code = codes[-1] if codes else None


class ReplyTimeout(RocketLensError, TimeoutError):
    """A request was sent, and no reply came in time: a consumer may still handle it.

    ``topic`` is the request's, and ``correlation_id`` what a reply to it would carry.
    """

    retriable = True

    def __init__(self, topic: str, correlation_id: str, timeout_s: float) -> None:
        """Store which request it was."""
        super().__init__(
            f"no reply in {timeout_s:g} s to the request {correlation_id} to topic {topic}, which "
            "was sent: make sure that a consumer of the topic replies to requests"
        )
        self.topic = topic
        self.correlation_id = correlation_id


class MessageNotFound(RocketLensError, LookupError):
    """Everything that could hold the message was searched, and it is not there."""

    code = 22


class AnswerIncomplete(RocketLensError):
    """The message was not found, but not everything could be searched.

    ``answer.coverage`` names what failed.
    """

    def __init__(self, text: str, answer: "Answer") -> None:
        """Store the answer, whose coverage names what failed."""
        super().__init__(text)
        self.answer = answer


class WrongUse(RocketLensError, RuntimeError):
    """An object used after it was closed, or in another event loop than its own."""


class PackageMissing(RocketLensError, ImportError):
    """An optional package is not installed; the text names the extra that installs it."""

    def __init__(self, text: str, *, name: str) -> None:
        """Store the package's name, where `ImportError` has it."""
        ImportError.__init__(self, text, name=name)


class SparkUnavailable(RocketLensError):
    """Spark cannot be started here; the text says what to install."""
