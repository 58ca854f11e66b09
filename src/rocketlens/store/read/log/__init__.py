"""The commit log as it is read."""
