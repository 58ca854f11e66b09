"""The web console: searches, messages and their stories, as pages and as a REST API.

The console only presents. `rocketlens.query.find` decides which messages match.
"""
