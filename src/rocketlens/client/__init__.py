"""Clients of a running cluster: producers, consumers and `MQAdmin`, async first.

Functions that send requests raise `RemotingError` if no broker or name server answers, and
`BrokerError` if a broker refuses. Internal docstrings name only other errors.
"""
