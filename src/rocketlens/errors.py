"""All errors that this package raises on purpose, as one tree.

::

    RocketLensError
    ├── BadInput              an invalid argument; the text says what is expected
    │   ├── WrongType         an argument of the wrong type; also a TypeError
    │   ├── MessageIllegal    a message that RocketMQ would refuse
    │   └── AddressNotAllowed an address that neither the configuration nor a route contains
    ├── FormatError           bytes that do not follow their format
    │   ├── RecordError       a commit log record (``reason``, ``physical_offset``)
    │   ├── BodyError         a message body that cannot be decompressed or decoded
    │   │   └── BodyTooLarge  a body that exceeds a limit of bytes, values or levels
    │   ├── IndexFileError    an index file
    │   ├── CheckpointError   a checkpoint
    │   └── ConfigError       a config/*.json file, or an option read from one
    ├── ProtocolError         invalid data from the peer of a connection (``closes``)
    │   ├── FrameError        invalid frame lengths; the connection must be closed
    │   ├── HeaderError       an undecodable header; the connection must be closed
    │   ├── FieldError        a header field that is missing or invalid (``field``)
    │   └── CommandBodyError  a command's JSON body
    ├── StoreError            a store directory as a whole
    │   ├── NotAStore         the directory has no commit log
    │   ├── StoreLocked       another process owns it
    │   ├── StoreChanged      it changed during an operation that needs it unchanged
    │   ├── StoreFull         no space for another record; reads still work
    │   ├── StoreBusy         a file cannot be opened at the moment; reads still work
    │   ├── StoreFailed       a write or sync failed: sends fail until a restart, reads still work
    │   └── CopyFailed        a broker's log cannot be copied, or not into this store
    ├── ArchiveError          an archive that cannot be read or written as a whole
    │   └── ArchiveTaken      another archiver wrote to it first
    ├── RemotingError         a remote call without a reply (``address``)
    │   ├── ConnectFailed     the connection was refused; nothing was sent
    │   ├── ConnectionLost    the connection ended before the reply
    │   ├── CallTimeout       the reply did not arrive in time
    │   └── BadAnswer         the reply cannot be decoded
    ├── BrokerError           a broker or name server refused the request (``address``)
    ├── TopicNotFound         no broker has the topic, or nothing in a store names it
    ├── SendFailed            no attempt to send was acknowledged (``attempts``)
    ├── ReplyTimeout          a request was sent but not replied to (``topic``, ``correlation_id``)
    ├── MessageNotFound       everything was searched, and the message does not exist
    ├── AnswerIncomplete      not found, but something could not be searched (``answer``)
    ├── WrongUse              an object used after it was closed, or in another event loop
    ├── PackageMissing        an optional package is not installed; also an ImportError
    └── SparkUnavailable      no usable JDK or PySpark on this machine

Neither of ``MessageNotFound`` and ``AnswerIncomplete`` is a subclass of the other, so that code
which handles a missing message never handles a failed search by accident.

``code`` is RocketMQ's response code for the error, or None. ``retriable`` is true if the same call
can succeed later without a repair.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketlens.model.answer import Answer


class RocketLensError(Exception):
    """Base class of all errors of this package. The text is one line, suitable for users."""

    code: int | None = None
    retriable: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the text and the attributes, whatever arguments the constructor takes."""
        reduced = super().__reduce__()
        assert isinstance(reduced, tuple)  # noqa: S101 - only other classes return a name
        _, args, *state = reduced
        return (_restored, (type(self), args), *state)


def _restored(error_class: type[RocketLensError], args: tuple[object, ...]) -> RocketLensError:
    error = error_class.__new__(error_class)
    error.args = args
    return error


class BadInput(RocketLensError, ValueError):
    """An argument is invalid. The text names it and says what is expected."""

    code = 29


class WrongType(BadInput, TypeError):
    """An argument has the wrong type. The text names the types that are accepted."""


class MessageIllegal(BadInput):
    """RocketMQ would refuse the message: it is too large, or its topic is invalid."""

    code = 13


class AddressNotAllowed(BadInput):
    """The address is in neither the configuration nor a route, so it is never connected to."""


class FormatError(RocketLensError, ValueError):
    """Bytes do not follow their format."""


class RecordError(FormatError):
    """A commit log record is not valid.

    ``reason`` is a value of :class:`rocketlens.formats.commitlog_record.Reason`.
    ``physical_offset`` is the record's offset in the log, or None if unknown.
    """

    code = 1

    def __init__(self, reason: str, detail: str, physical_offset: int | None = None) -> None:
        where = "" if physical_offset is None else f" at physical offset {physical_offset}"
        super().__init__(f"record{where}: {detail}")
        self.reason = reason
        self.physical_offset = physical_offset


class BodyError(FormatError):
    """A message body cannot be decompressed or decoded."""


class BodyTooLarge(BodyError):
    """A message body exceeds a limit of bytes, values or levels, or would when decompressed."""


class IndexFileError(FormatError):
    """The header, size or chains of an index file contradict each other or the log."""


class CheckpointError(FormatError):
    """A checkpoint is too short for its fields."""


class ConfigError(FormatError):
    """A ``config/*.json`` file is not JSON in either of RocketMQ's dialects."""


class ProtocolError(RocketLensError, ValueError):
    """The peer sent data that does not follow RocketMQ's remoting protocol.

    If ``closes`` is true, the connection must be closed, as RocketMQ does: after a bad frame or
    header, the start of the next frame is unknown. Otherwise the server answers the request with
    ``code`` and ``remark``, and keeps the connection open.
    """

    code = 1
    closes: ClassVar[bool] = True

    @property
    def remark(self) -> str:
        """The text of the server's answer."""
        return str(self)


class FrameError(ProtocolError):
    """The lengths of a frame are invalid or exceed the limit."""


class HeaderError(ProtocolError):
    """The header of a command cannot be decoded."""


class FieldError(ProtocolError):
    """A header field is missing or has an invalid value.

    ``field`` is the name on the wire. The text starts like RocketMQ's own remark.
    """

    closes = False

    def __init__(self, field: str, java: str) -> None:
        super().__init__(java)
        self.field = field


class CommandBodyError(ProtocolError):
    """The JSON body of a command cannot be read, or lacks a required member."""

    closes = False


class StoreError(RocketLensError):
    """A store directory cannot be used as a whole."""


class NotAStore(StoreError):
    """The directory holds no commit log."""


class StoreLocked(StoreError):
    """Another process, a broker or a job, owns the store."""

    retriable = True


class StoreChanged(StoreError):
    """The store changed during an operation that needs it unchanged."""

    retriable = True


class StoreFull(StoreError):
    """The disk has no space for another record. Reads still work, sends once there is space."""

    code = 14
    retriable = True


class StoreBusy(StoreError):
    """A file of the store cannot be opened or mapped at the moment. The next call can succeed."""

    code = 14
    retriable = True


class StoreFailed(StoreError):
    """A write or sync failed, so nothing is stored or acknowledged until a restart.

    After a failed sync the content of the disk is unknown, so a second sync that succeeds proves
    nothing. Reads still work.
    """

    code = 14


class CopyFailed(StoreError):
    """A broker's log cannot be copied, or not into this store. The text says what to do."""


class ArchiveError(RocketLensError):
    """An archive cannot be read or written as a whole."""


class ArchiveTaken(ArchiveError):
    """Another archiver added the same messages first. Nothing was added twice."""

    retriable = True


class RemotingError(RocketLensError):
    """A remote call got no reply. ``address`` is the peer.

    The peer may have executed the request, except after :class:`ConnectFailed`.
    """

    retriable = True

    def __init__(self, address: str, text: str) -> None:
        super().__init__(f"{address}: {text}")
        self.address = address


class ConnectFailed(RemotingError):
    """The connection was refused or timed out. Nothing was sent."""


class ConnectionLost(RemotingError):
    """The connection ended before the reply."""


class CallTimeout(RemotingError, TimeoutError):
    """The reply did not arrive in time."""


class BadAnswer(RemotingError):
    """The reply cannot be decoded: the peer is perhaps not a RocketMQ server.

    ``request`` describes the request, ``reason`` what is wrong with the reply.
    """

    def __init__(self, address: str, request: str, reason: str) -> None:
        super().__init__(
            address,
            f"its answer to {request} cannot be read ({reason}): make sure that this is the "
            "address of a RocketMQ server, 4.x or 5.x",
        )
        self.request = request
        self.reason = reason


class BrokerError(RocketLensError):
    """A broker or name server refused the request.

    ``code`` and ``remark`` are from its answer; ``address`` is its address.
    """

    def __init__(self, address: str, code: int, remark: str | None, *, retriable: bool) -> None:
        text = " ".join((remark or "no reason given").split())
        super().__init__(f"{address}: code {code}: {text}")
        self.address = address
        self.code = code
        self.remark = remark
        self.retriable = retriable


class TopicNotFound(RocketLensError, LookupError):
    """No broker known to the name servers has the topic, or accepts it for sends.

    For a store: neither its files nor any record of its log name the topic.
    """

    code = 17


class SendFailed(RocketLensError):
    """No attempt to send was acknowledged. ``attempts`` has each broker's name and error.

    The message may be stored nevertheless, unless each error is a :class:`ConnectFailed` or a
    :class:`BrokerError`. It keeps its unique key when it is sent again.
    """

    retriable = True

    def __init__(self, text: str, attempts: "Sequence[tuple[str, RocketLensError]]") -> None:
        super().__init__(text)
        self.attempts = tuple(attempts)
        codes = [error.code for _, error in self.attempts if error.code is not None]
        self.code = codes[-1] if codes else None


class ReplyTimeout(RocketLensError, TimeoutError):
    """A request was sent, but no reply arrived in time. A consumer may still handle it.

    ``topic`` is the topic of the request; a late reply carries its ``correlation_id``.
    """

    retriable = True

    def __init__(self, topic: str, correlation_id: str, timeout_s: float) -> None:
        super().__init__(
            f"no reply in {timeout_s:g} s to the request {correlation_id} to topic {topic}, which "
            "was sent: make sure that a consumer of the topic replies to requests"
        )
        self.topic = topic
        self.correlation_id = correlation_id


class MessageNotFound(RocketLensError, LookupError):
    """Everything that could contain the message was searched, and it does not exist."""

    code = 22


class AnswerIncomplete(RocketLensError):
    """The message was not found, but something could not be searched.

    ``answer.coverage`` names the sources that failed.
    """

    def __init__(self, text: str, answer: "Answer") -> None:
        super().__init__(text)
        self.answer = answer


class WrongUse(RocketLensError, RuntimeError):
    """An object was used after it was closed, or in another event loop than its own."""


class PackageMissing(RocketLensError, ImportError):
    """An optional package is not installed. The text names the extra that installs it."""

    def __init__(self, text: str, *, name: str) -> None:
        ImportError.__init__(self, text, name=name)


class SparkUnavailable(RocketLensError):
    """Spark cannot be started on this machine. The text says what to install."""
