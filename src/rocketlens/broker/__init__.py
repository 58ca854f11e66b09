"""The broker: takes messages, stores them, and answers questions about them.

=============  ====================================================================
module         what
=============  ====================================================================
service        opens the store, listens, registers, keeps house, stops
config         ``broker.conf``, in RocketMQ's own keys
core           what all processors share
registry       topics and groups: their rules, and which are made by themselves
clients        who is connected, and in which groups
figures        counts, and rates over time
durable        who waits for the disk
search         look-ups by key over the live store
registration   103 and 104: what the name servers are told
schedule       delivers delayed messages when they are due
=============  ====================================================================

The processors, one for each request family: send (10, 310, 320), query (12, 33), pull (11, 361),
offset (14, 15, 29 to 32), topic (17, 215, 202, 351), client (34, 35, 38, 203, 208, 300),
transaction (37), runtime (28).

All state belongs to the event loop of the service.
"""
