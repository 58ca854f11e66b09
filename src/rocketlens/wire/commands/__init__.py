"""The headers of every command that we send or answer, and the commands, by subject."""
