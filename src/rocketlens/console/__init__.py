"""The web console: searches, messages and their stories as pages and as an API.

It decides nothing about what is found: it asks sources by `rocketlens.query.find`, and shows the
answer with its coverage.
"""
