"""The commands that RocketLens sends or answers, with their headers, by subject."""
