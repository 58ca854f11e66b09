"""Bounds that several modules share, with unit, reason and RocketMQ's own value.

A number from outside (a file, a frame, a user) is compared with a bound before it is used to
allocate, loop or recurse. A bound of a single module is declared there, and named ``MAX_`` or
``MIN_``. Sizes that do not limit input, such as the rows of a preview, are private constants.
"""

from typing import Final

# Numbers and times.

MAX_INT: Final = 2**31 - 1
"""Largest 32-bit integer. RocketMQ: Integer.MAX_VALUE."""
MAX_LONG: Final = 2**63 - 1
"""Largest 64-bit integer. RocketMQ: Long.MAX_VALUE."""
MAX_PHYSICAL_OFFSET: Final = 2**62
"""Largest valid physical offset, in bytes: the sum of two fits 64 bits. RocketMQ: Long.MAX_VALUE.
"""
MAX_QUEUE_OFFSET: Final = 2**58
"""Largest valid queue offset: the byte position of a larger one does not fit 63 bits."""
MAX_TIMESTAMP_MS: Final = MAX_LONG
"""End of an open time range, in epoch milliseconds. RocketMQ: Long.MAX_VALUE."""
MAX_PORT: Final = 65_535
"""Largest TCP port."""

# Records and stores.

MAX_RECORD_BYTES: Final = 512 * 1024 * 1024
"""Largest valid record, in bytes; a larger size field is damage.

RocketMQ: maxMessageSize (4 MiB by default) + 64 KiB, but brokers are configured far above that.
The end of the segment limits a record, too.
"""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest decompressed body, in bytes: four times the size of a frame.

RocketMQ: unlimited (zlib expands up to 1,028 times). Its clients send at most 4 MiB before
compression by default.
"""
MAX_PROPERTIES_BYTES: Final = 32_767
"""Largest property string of a record, in bytes: its length is a signed 16-bit field."""
MAX_RECORD_ENTRIES: Final = (MAX_PROPERTIES_BYTES + 1) // 2
"""Index entries of one record: its keys (one byte and a space each), unique key and tag."""
MAX_KEY_BYTES: Final = MAX_PROPERTIES_BYTES
"""Longest key, in UTF-8 bytes: the properties of a record contain it."""
MAX_TOPIC_CHARACTERS: Final = 255
"""Longest topic name in a store, as retry and dead letter topics have. RocketMQ: the same."""
MAX_GROUP_CHARACTERS: Final = 255
"""Longest group name. RocketMQ: the same (``Validators`` of 4.9)."""
MAX_NEW_GROUP_CHARACTERS: Final = 120
"""Longest name of a group that an operator creates. RocketMQ: the same (``TopicValidator``)."""
MAX_TOPIC_QUEUES: Final = 65_536
"""Queues of a topic on one broker: brokers refuse more, clients reject more. RocketMQ: unlimited.
"""
MAX_ROUTE_QUEUES: Final = 4 * MAX_TOPIC_QUEUES
"""Queues of a topic on all brokers: clients reject more. RocketMQ: unlimited."""
MAX_DAMAGE_REPORTS: Final = 1_000
"""Damaged ranges that an answer or report lists; the rest are counted."""
MAX_UNWRITTEN_SEARCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes of written zeros after the end of the log in which the next record is searched for.

Twice RocketMQ's largest record. A segment is searched to its end once; holes are never read.
"""
MAX_SHORT_SCAN_BYTES: Final = 256 * 1024
"""Length of log that is read as a whole instead of searched by its queues."""
MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Largest file about the state of a store that is read, such as ``state.json``, in bytes."""
MAX_CONFIG_BYTES: Final = 256 * 1024 * 1024
"""Largest file of ``config/`` that is written, in bytes. RocketMQ: unlimited."""
MAX_CONFIG_READ_BYTES: Final = 4 * MAX_CONFIG_BYTES
"""Largest file of ``config/`` that is read, in bytes: RocketMQ's brokers write larger ones."""
MAX_SERVER_CONFIG_BYTES: Final = 1024 * 1024
"""Largest ``broker.conf``, ``namesrv.conf`` or file of TLS settings, in bytes. RocketMQ: unlimited.
"""
MAX_CONTEXTS_BYTES: Final = 1024 * 1024
"""Largest file of named contexts or of mqadmin's access keys, in bytes. RocketMQ: unlimited."""

# Searches and their answers.

DEFAULT_QUERY_MESSAGES: Final = 64
"""Default number of messages that ``query_message`` returns. RocketMQ: at most 64."""
DEFAULT_TAIL_MESSAGES: Final = 10
"""Messages that ``tail`` shows first, as ``tail`` of a file shows 10 lines."""
MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
"""Memory of one answer, in bytes, with properties and keys; the newest messages are kept.

With buffers and one message as JSON, a tool stays below 1 GiB on any input. RocketMQ: unlimited.
"""
MESSAGE_OVERHEAD_BYTES: Final = 1_200
"""Memory of a message besides its body, properties and keys, in bytes."""
MAX_TOPIC_SCAN_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Largest log that is read for deleted topics before a key is reported as missing from all topics.

One GiB takes a second. Of a larger log, samples are read, and the answer is incomplete unless the
caller allows more, as the command line does. RocketMQ: needs a topic.
"""
MAX_STORY_RECORDS: Final = 1_000
"""Records of one message and of its trace that a story uses. RocketMQ's trace: 64."""
MAX_WAITING_MESSAGES: Final = 2_000
"""Newest delayed and timed messages that are counted by topic."""
MAX_LOOKED_AT_ENTRIES: Final = 1_000
"""Entries of a directory that are searched for a store if it is none: some milliseconds."""
MAX_NAMED_STORES: Final = 3
"""Stores that an error suggests: more do not fit a line."""

# Message bodies.

MAX_SHOWN_JSON_BYTES: Final = 4 << 20
"""Largest body shown as JSON, in bytes: parsed, it takes up to 50 times the memory."""
MAX_DECODED_BYTES: Final = 8 << 20
"""Bytes of a decompressed body that are decoded, and characters of its values."""
MAX_BINARY_VALUES: Final = 40_000
"""Values that are decoded of one binary body, over all formats that are tried: 2 µs each."""
MAX_DECODED_LEVELS: Final = 100
"""Levels of nesting of a decoded body."""
MAX_DECIMAL_BITS: Final = 14_000
"""Larger integers are shown in hexadecimal: Python refuses over 4,300 decimal digits."""
MAX_PREVIEW_BYTES: Final = 16 << 10
"""Largest body that is decoded for its line in a list, in bytes: some milliseconds."""
MAX_PREVIEW_CHARACTERS: Final = 160
"""Characters of a body in its line in a list."""

# The remoting protocol.

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Largest frame, in bytes, its length field included. RocketMQ: the same."""
MAX_ANSWER_FRAME_BYTES: Final = MAX_FRAME_BYTES - 64 * 1024
"""Records or JSON in one answer of a server, in bytes: the rest of the frame is for the header."""
MAX_REQUEST_HEADER_BYTES: Final = 384 * 1024
"""Largest header that a server reads, in bytes: parsed JSON takes up to 70 times the memory.

The 32,767 bytes of a message's properties become at most 192 KiB of JSON. RocketMQ: the frame.
"""
MAX_HEADER_BYTES: Final = 8 * 1024 * 1024
"""Largest header that a client reads: the reply to a batch has 33 bytes for each message."""
MAX_EXT_FIELDS: Final = 1_024
"""Fields of one header. RocketMQ's own headers have up to 25."""
MAX_NUMBER_CHARACTERS: Final = 64
"""Longest number in a header field. RocketMQ: unlimited leading zeros."""
MAX_QUOTATION_CHARACTERS: Final = 64
"""Characters of an invalid field that an error quotes."""
MAX_REMARK_CHARACTERS: Final = 500
"""Longest remark about a failure in an answer."""
MAX_JSON_BODY_BYTES: Final = MAX_FRAME_BYTES
"""Default for the largest JSON body that is read: the topics of a broker or cluster."""
MAX_CLIENT_JSON_BODY_BYTES: Final = 1024 * 1024
"""Largest JSON body that a broker reads from a client: heartbeats and lists of queues."""
MAX_STATE_VERSION: Final = MAX_INT
"""Largest state version of a broker's topics: a controller's 32-bit count of masters."""
MAX_PULL_BATCH: Final = 1_024
"""Messages that a consumer requests at once; brokers return 32 by default. RocketMQ: 1,024."""
MAX_PULL_MESSAGES: Final = 32
"""Messages that a pull returns. RocketMQ: the same (maxTransferCountOnMessageInMemory)."""
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Default for the largest body that a producer sends. RocketMQ: 4 MiB (maxMessageSize)."""
MAX_SUBSCRIPTION_CHARACTERS: Final = 32_767
"""Longest subscription expression: each pull parses it, in some milliseconds. RocketMQ: unlimited.
"""
MAX_TRIGGER_OFFSETS: Final = 1_000_000
"""Default of ``maxOffsetsPerTrigger``: messages in one batch of a stream of a cluster."""

# Servers and connections.

MAX_UNANSWERED_REQUESTS: Final = 10_000
"""Requests of one connection that a server works on at once; it answers more with "busy".

RocketMQ: 10,000 queued sends of all connections (sendThreadPoolQueueCapacity).
"""
MAX_CONNECTIONS: Final = 10_000
"""Connections of a server, fewer if it can open fewer files; new ones replace idle ones. RocketMQ:
unlimited.
"""
MAX_TURN_S: Final = 0.0005
"""Seconds of work for one connection before it is the turn of others. RocketMQ: a thread pool.

Next to a connection that sends at full speed, the 99th percentile of other sends is 2 ms, and with
turns of 2 ms it is 5 ms. Shorter turns cost no more CPU time.
"""
MAX_RUN_MESSAGES: Final = 64
"""Sends of one connection that are handled together: half of a turn. RocketMQ: each alone."""
MAX_RUN_KEY_BYTES: Final = 128
"""Longest unique key in a run of sends, for the size of the replies. Producers use 32 bytes."""
MAX_RUN_PROPERTIES: Final = 96
"""Properties of a send in a run: a Java hash table of 128 holds these before it grows."""
MAX_TURN_MEMBERS: Final = 512
"""Batch members stored in one step on the event loop: some milliseconds. RocketMQ: all of them."""
MAX_PIECE_S: Final = 0.002
"""Seconds of one step of long work on the event loop."""
FRAME_DEADLINE_S: Final = 10.0
"""Seconds until a small frame must be complete, and a TLS handshake finished."""
MIN_IDLE_S: Final = 2.0
"""Seconds without a byte after which a connection can be closed to make room for a new one."""
CONNECT_TIMEOUT_S: Final = 3.0
"""Seconds to wait for a connection. RocketMQ: 3."""
ADMIN_TIMEOUT_S: Final = 5.0
"""Seconds to wait for one reply to a query. RocketMQ: 5, and 6 to 18 for searches."""
HEARTBEAT_S: Final = 30.0
"""Seconds between heartbeats of a producer; a broker forgets it after 120. RocketMQ: 30."""
MAX_SHOWN_CHARACTERS: Final = 300
"""Characters of a foreign name or value in a remark or log line. RocketMQ: unlimited."""
MAX_CLIENT_ID_CHARACTERS: Final = 1_024
"""Longest client id that a broker keeps; RocketMQ's clients use about 50 characters."""
MAX_ADDRESS_CHARACTERS: Final = 300
"""Longest address, cluster name or broker name that a name server keeps."""
MAX_LOOK_UPS: Final = 10_000
"""Queued look-ups by key and id of all connections: 30 MB. RocketMQ: 20,000
(queryThreadPoolQueueCapacity).
"""
MAX_LOOP_CANDIDATES: Final = 256
"""Candidates that a look-up on the event loop checks: some milliseconds."""
MAX_LOOP_RUNS: Final = 32
"""Sorted runs of the tail index that a look-up on the event loop searches."""
MAX_LOOP_NEW_BYTES: Final = 128 * 1024
"""Log without entries that a look-up on the event loop scans: 20 µs."""
MAX_RELAYS_OF_CONNECTION: Final = 64
"""Requests of one connection that a broker relays to consumers at once."""
MAX_STOP_S: Final = 4.0
"""Seconds from a signal to the end of a server: supervisors kill it after 5 or 10."""
MAX_FAREWELL_S: Final = 3.0
"""Part of MAX_STOP_S for clients and name servers; the store is always closed in full."""
MAX_UNREGISTER_S: Final = 1.0
"""Part of MAX_STOP_S for name servers."""
MAX_STOP_ANSWERS_S: Final = 1.0
"""Part of MAX_STOP_S for pending answers."""
MAX_LIKE_LOG_LINES: Final = 50
"""Log lines of one kind in 10 seconds, below ERROR: clients cause most. RocketMQ: unlimited."""
MIN_WARNING_INTERVAL_S: Final = 60.0
"""Seconds between log lines about the same condition, such as refused connections. RocketMQ: a line
for each.
"""
MAX_WAITING_LOG_LINES: Final = 10_000
"""Queued log lines for stderr; more are dropped and counted. RocketMQ's appender blocks, or drops
after some thousands.
"""

# The console.

MAX_CONSOLE_ROWS: Final = 500
"""Messages on one page; a cursor continues it. RocketMQ's dashboard: 64 by key, 2,000 by time."""
DEFAULT_CONSOLE_ROWS: Final = 100
"""Default number of messages on one page."""
MAX_EXPORT_ROWS: Final = 10_000
"""Messages that an export reads at a time: each time is one search of the store."""
MAX_EXPORT_PIECE_BYTES: Final = 256 << 10
"""Bytes of an exported file that are sent at once; the connection's buffer takes the next then."""
MAX_CONSOLE_TEXT: Final = 40_000
"""Characters of one request parameter: a key can have 32,767 bytes."""
MAX_CONSOLE_SOURCES: Final = 32
"""Sources of one console."""
CONSOLE_OVERVIEW_S: Final = 60.0
"""Seconds between refreshes of the first page: a cluster takes a request per broker and group."""
MAX_AUDIT_CHARACTERS: Final = 1024
"""Characters of one value in a line of the audit log: users choose names and topics."""
MAX_SAVED_TITLE: Final = 100
"""Characters of the name of a saved search."""
MAX_SHOWN_SAVED_SEARCHES: Final = 12
"""Saved searches on the first page; a page of their own lists all."""
MAX_CHOSEN_MESSAGES: Final = 500
"""Messages that are selected one by one for a job: each is read separately, and all fit one form.
"""
MAX_CONSOLE_REASON: Final = 1_000
"""Characters of the reason for an action, which is stored with it."""
MAX_CONSOLE_JOB_FILES: Final = 200
"""Newest jobs and actions on one page: each is a file, read again only if it changed."""
MAX_RESEND_RATE: Final = 1_000
"""Messages a second of one resend job."""
MAX_RESEND_MESSAGES: Final = 100_000
"""Messages of one resend job: 86 MiB of memory. RocketMQ: one at a time."""
