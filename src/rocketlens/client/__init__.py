"""Clients of a running cluster: producers, consumers and `MQAdmin`, async first."""
