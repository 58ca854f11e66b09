"""The commands that run jobs: index, archive, duplicates, job and watch."""
