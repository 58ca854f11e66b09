"""The broker's own files beside the log: its tables of topics, groups and offsets."""
