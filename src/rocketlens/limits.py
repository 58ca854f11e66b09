"""The bounds that several modules share: value, unit, why, and RocketMQ's own value.

A number that comes from outside (a file, a frame, a user) is compared with a bound before it is
used to allocate, loop or recurse. A bound of one module stands there, and its name begins with
``MAX_`` or ``MIN_``. How much a module shows, or does in one step, whatever comes from outside, is
a private constant of that module.
"""

from typing import Final

MAX_INT: Final = 2**31 - 1
"""Largest 32-bit number. RocketMQ: Integer.MAX_VALUE."""

MAX_LONG: Final = 2**63 - 1
"""Largest 64-bit number. RocketMQ: Long.MAX_VALUE."""

MAX_PHYSICAL_OFFSET: Final = 2**62
"""Largest physical offset that is believed, in bytes: two of them add up to 64 bits at most.
RocketMQ: Long.MAX_VALUE.
"""

MAX_QUEUE_OFFSET: Final = 2**58
"""Largest queue offset that is believed: above it an entry has no byte position in 63 bits."""

MAX_TIMESTAMP_MS: Final = MAX_LONG
"""End of a time range that has none, in milliseconds. RocketMQ: Long.MAX_VALUE."""

MAX_RECORD_BYTES: Final = 512 * 1024 * 1024
"""Largest record that is believed, in bytes.

A size word above it is damage, not a message. RocketMQ: maxMessageSize (default 4 MiB) + 64 KiB,
but brokers are configured far above that, and the segment's own end bounds it again.
"""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest body after decompression, in bytes; more is an error, not memory.

Four times what a frame carries. RocketMQ does not bound it (zlib alone expands 1,028 times); its
clients send no body of over 4 MiB before compression, unless they are configured to.
"""

MAX_PROPERTIES_BYTES: Final = 32_767
"""Largest property string of a record, in bytes: its length is a signed 16-bit field."""

MAX_RECORD_ENTRIES: Final = (MAX_PROPERTIES_BYTES + 1) // 2
"""Index entries of one record: keys of one byte with a space between, the unique key, the tags."""

MAX_KEY_BYTES: Final = MAX_PROPERTIES_BYTES
"""Longest key that a record can hold, in UTF-8 bytes."""

MAX_TOPIC_CHARACTERS: Final = 255
"""Longest topic name in a store: those of retry and dead-letter topics. RocketMQ: the same."""

DEFAULT_QUERY_MESSAGES: Final = 64
"""Messages returned by ``query_message`` unless asked otherwise. RocketMQ: at most 64."""

MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
"""Messages held by one answer, in bytes as they are in memory, with properties and keys.

The newest are kept, and the answer says so. With what is under way to it, and with one message as
JSON, a tool so stays below 1 GiB whatever it is given. RocketMQ has no bound.
"""

MESSAGE_OVERHEAD_BYTES: Final = 1_200
"""What a message takes in memory beside its body, properties and keys, with its order entry."""

MAX_TOPIC_SCAN_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Log of at most so many bytes is read for deleted topics before a key is said to be in no topic.

That takes a second a GiB. Of a larger log samples are read, and the answer is incomplete unless
the caller allows more: the command line does, and says so, a library does not wait for minutes
unasked. RocketMQ finds nothing without a topic.
"""

MAX_DAMAGE_REPORTS: Final = 1_000
"""Damaged ranges named one by one in an answer or report; the rest are counted."""

MAX_UNWRITTEN_SEARCH_BYTES: Final = 8 * 1024 * 1024
"""How far behind the log's end a lost record is looked for again, in bytes of written zeros.

Twice RocketMQ's largest record. Once, a segment is searched to its end; holes are never read.
"""

MAX_SHORT_SCAN_BYTES: Final = 256 * 1024
"""Log up to this long is read from its begin to its end rather than searched by queues."""

MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Largest file of what is known to be durable that is read, in bytes."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Largest frame of the remoting protocol, its four length bytes included. RocketMQ: the same."""

MAX_ANSWER_FRAME_BYTES: Final = MAX_FRAME_BYTES - 64 * 1024
"""Records, or JSON, of one answer of a server, in bytes: header and body must fit a frame."""

MAX_REQUEST_HEADER_BYTES: Final = 384 * 1024
"""Largest header that a server reads: JSON can grow to 70 times its size in memory.

The properties of a message, at most 32,767 bytes, become at most 192 KiB in JSON. RocketMQ: only
the frame bounds it.
"""

MAX_HEADER_BYTES: Final = 8 * 1024 * 1024
"""Largest header that a client reads: the reply to a batch names every message, 33 bytes each."""

MAX_EXT_FIELDS: Final = 1_024
"""Fields in one header, at most. RocketMQ's own headers have up to 25."""

MAX_NUMBER_CHARACTERS: Final = 64
"""Longest number in a header field. RocketMQ: any number of leading zeros."""

MAX_QUOTATION_CHARACTERS: Final = 64
"""Characters of a wrong field that an error repeats."""

MAX_REMARK_CHARACTERS: Final = 500
"""Longest remark about a failure in an answer."""

MAX_JSON_BODY_BYTES: Final = MAX_FRAME_BYTES
"""Largest JSON body that is read, unless less is asked for: a broker's topics, a cluster's."""

MAX_CLIENT_JSON_BODY_BYTES: Final = 1024 * 1024
"""Largest JSON body that a broker reads from a client: heartbeats and lists of queues."""

MAX_UNANSWERED_REQUESTS: Final = 10_000
"""Requests of one connection that a server works on at once; more are answered with "busy".

RocketMQ: 10,000 in the queue of its senders (sendThreadPoolQueueCapacity), over all connections.
"""

MAX_CONNECTIONS: Final = 10_000
"""Connections that a server has at once, at most; fewer where few files may be open. Idle ones are
closed for new ones. RocketMQ: no limit.
"""

MAX_TURN_S: Final = 0.0005
"""Seconds of work for one connection before others have their turn. RocketMQ: a thread pool.

Beside one that sends as fast as it can, others' sends wait at the 99th percentile for 2 ms, and for
5 ms with turns of 2 ms. The turns themselves take no more of the processor.
"""

MAX_RUN_MESSAGES: Final = 64
"""Sends of one connection that are handled together: half of a turn. RocketMQ: each alone."""

MAX_RUN_KEY_BYTES: Final = 128
"""Unique key of such a send, for the room of its reply. Producers' have 32."""

MAX_RUN_PROPERTIES: Final = 96
"""Properties of such a send: as many as a table of Java's of 128 holds before it grows."""

MAX_TURN_MEMBERS: Final = 512
"""Members of a batch that are stored in one piece of work on the event loop: milliseconds.
RocketMQ: all of them.
"""

MAX_PIECE_S: Final = 0.002
"""Seconds of a long piece of work on the event loop before others have their turn."""

FRAME_DEADLINE_S: Final = 10.0
"""Seconds in which a small frame must be there, and a TLS handshake done."""

MIN_IDLE_S: Final = 2.0
"""Seconds without a byte after which a connection is closed for a new one, if there is no room."""

CONNECT_TIMEOUT_S: Final = 3.0
"""Seconds to wait for a connection. RocketMQ: 3."""

MAX_STATE_VERSION: Final = MAX_INT
"""Largest state version of a broker's topics: a controller's count of masters, 32 bits there."""

MAX_TOPIC_QUEUES: Final = 65_536
"""Queues of a topic on a broker: brokers refuse more, clients believe no more. RocketMQ: any."""

MAX_GROUP_CHARACTERS: Final = 255
"""Longest name of a group. RocketMQ: the same (``Validators`` of 4.9)."""

MAX_NEW_GROUP_CHARACTERS: Final = 120
"""Longest name of a group that operators create. RocketMQ: the same (``TopicValidator``)."""
MAX_SHOWN_CHARACTERS: Final = 300
"""Characters of a name or value of others in a remark or a log line. RocketMQ: any."""

MAX_CLIENT_ID_CHARACTERS: Final = 1_024
"""Longest client id that a broker keeps; those of RocketMQ's clients have some 50 characters."""

MAX_ADDRESS_CHARACTERS: Final = 300
"""Longest address, cluster or broker name that a name server keeps."""
MAX_ROUTE_QUEUES: Final = 4 * MAX_TOPIC_QUEUES
"""Queues of one topic on all brokers that a client believes; more is an error. RocketMQ: any."""

ADMIN_TIMEOUT_S: Final = 5.0
"""Seconds to wait for one answer to a query. RocketMQ: 5, and 6 to 18 where it searches."""

HEARTBEAT_S: Final = 30.0
"""Seconds between two heartbeats of a producer; a broker forgets it after 120. RocketMQ: 30."""

MAX_PULL_BATCH: Final = 1_024
"""Messages that a consumer asks for at once; brokers give 32 unless configured. RocketMQ: 1,024."""

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Largest body that a producer sends, unless told otherwise. RocketMQ: 4 MiB (maxMessageSize)."""

MAX_PULL_MESSAGES: Final = 32
"""Messages that are pulled at once. RocketMQ gives no more (maxTransferCountOnMessageInMemory)."""

MAX_CONFIG_BYTES: Final = 256 * 1024 * 1024
"""Largest file of ``config/`` that is written, in bytes. RocketMQ: none."""

MAX_CONFIG_READ_BYTES: Final = 4 * MAX_CONFIG_BYTES
"""Largest file of ``config/`` that is read, in bytes: more than is written, for real brokers'."""

MAX_SERVER_CONFIG_BYTES: Final = 1024 * 1024
"""Largest ``broker.conf``, ``namesrv.conf`` or file of TLS settings, in bytes. RocketMQ: none."""

MAX_PORT: Final = 65_535
"""The highest port of TCP."""

MAX_CONTEXTS_BYTES: Final = 1024 * 1024
"""Largest file of named contexts, or of mqadmin's access keys, in bytes. RocketMQ: any."""

MAX_LOOK_UPS: Final = 10_000
"""Look-ups by key and id of all connections that wait: 30 MB. RocketMQ: 20,000
(queryThreadPoolQueueCapacity).
"""

MAX_LOOP_CANDIDATES: Final = 256
"""Candidates that a look-up on the event loop looks at: some milliseconds."""

MAX_LOOP_RUNS: Final = 32
"""Runs of entries in memory that a look-up on the event loop looks at: likewise."""

MAX_LOOP_NEW_BYTES: Final = 128 * 1024
"""Log without entries that a look-up on the event loop compares record by record: 20 us."""

MAX_RELAYS_OF_CONNECTION: Final = 64
"""The same of one connection that asks."""

MAX_SUBSCRIPTION_CHARACTERS: Final = 32_767
"""Longest expression of a subscription: some ms to read, which each pull does. RocketMQ: any."""
MAX_SAVED_TITLE: Final = 100
"""Characters of the name of a saved search: it is a line of a list."""
MAX_SHOWN_SAVED_SEARCHES: Final = 12
"""Saved searches on the first page of the console; their own page has all."""
MAX_CHOSEN_MESSAGES: Final = 500
"""Messages that are chosen one by one in the console's lists for one job: each is read by itself,
and they fit the fields of a form.
"""
MAX_RESEND_MESSAGES: Final = 100_000
"""Messages of one job that sends them again: 86 MiB of memory. RocketMQ: one at a time."""

MAX_TRIGGER_OFFSETS: Final = 1_000_000
"""Messages in one batch of a stream of a cluster, unless ``maxOffsetsPerTrigger`` sets it."""

MAX_STOP_S: Final = 4.0
"""Seconds from a signal to the end of a server: some are killed after 5 or 10."""

MAX_FAREWELL_S: Final = 3.0
"""Of these for all that is done for others: what the store needs is done in any case."""

MAX_UNREGISTER_S: Final = 1.0
"""Of these for name servers."""

MAX_STOP_ANSWERS_S: Final = 1.0
"""Of these for answers that are under way."""

MAX_SHOWN_JSON_BYTES: Final = 4 << 20
"""Largest body that is shown as JSON: as values it takes up to 50 times its size in memory."""

DEFAULT_TAIL_MESSAGES: Final = 10
"""Messages with which ``tail`` begins, as that of a file begins with lines."""

MAX_STORY_RECORDS: Final = 1_000
"""Records of one message, and of its trace, that a story is told from. RocketMQ's trace: 64."""

MAX_LIKE_LOG_LINES: Final = 50
"""Log lines with the same words in ten seconds, below ERROR: clients cause most. RocketMQ: any."""
MIN_WARNING_INTERVAL_S: Final = 60.0
"""Seconds between two log lines about what goes on: connections or messages that are refused, each
of which clients try again. RocketMQ: a line for each.
"""
MAX_WAITING_LOG_LINES: Final = 10_000
"""Log lines that wait until stderr takes them; more are dropped and counted. RocketMQ's appender
blocks, or drops beyond some thousands.
"""

MAX_DECODED_BYTES: Final = 8 << 20
"""Bytes of one message body that are decoded, without its compression; characters of its values."""
MAX_BINARY_VALUES: Final = 40_000
"""Values of one message body of another format that are decoded, with all formats that are tried:
some 2 us each.
"""

MAX_DECODED_LEVELS: Final = 100
"""Levels of nesting of a message body that are decoded."""

MAX_DECIMAL_BITS: Final = 14_000
"""Integers of more bits are shown in hexadecimal: Python writes none of over 4,300 digits, which
takes long.
"""
MAX_WAITING_MESSAGES: Final = 2_000
"""Newest messages that wait, of delays and of timers, that are counted by topic."""

MAX_CONSOLE_ROWS: Final = 500
"""Messages on one page of the console; a cursor continues it. RocketMQ's dashboard: 64 by key and
2,000 by time in all.
"""
DEFAULT_CONSOLE_ROWS: Final = 100
"""Messages on one page of the console, where the caller does not say how many."""
MAX_EXPORT_ROWS: Final = 10_000
"""Messages that the console reads at a time for a file: a store is read once each time."""
MAX_EXPORT_PIECE_BYTES: Final = 256 << 10
"""Of a file that the console sends at once; the next piece is made when there is room for it."""
MAX_CONSOLE_TEXT: Final = 40_000
"""Characters of one value of a request to the console: a key can have 32,767 bytes."""
MAX_CONSOLE_SOURCES: Final = 32
"""Sources of one console."""
CONSOLE_OVERVIEW_S: Final = 60.0
"""Seconds after which the first page of the console asks for the state of its sources again: of a
cluster it takes a request to each broker for each group.
"""
MAX_AUDIT_CHARACTERS: Final = 1024
"""Of one value in a line of the console's audit log: others choose names and topics."""
MAX_PREVIEW_BYTES: Final = 16 << 10
"""Largest body that is decoded for its line in a list: some milliseconds."""
MAX_PREVIEW_CHARACTERS: Final = 160
"""Of a body in its line in a list."""
MAX_CONSOLE_REASON: Final = 1_000
"""Characters of the reason for an act, which is kept with what was done."""
MAX_CONSOLE_JOB_FILES: Final = 200
"""Newest jobs and acts that one page lists: each file is read once, and again when it changed."""
MAX_RESEND_RATE: Final = 1_000
"""Messages a second of one job of the console."""
MAX_LOOKED_AT_ENTRIES: Final = 1_000
"""Entries of a directory that holds no store which are looked into for one: a few milliseconds."""
MAX_NAMED_STORES: Final = 3
"""Stores that are named where one was expected and is not: a line holds no more paths."""
