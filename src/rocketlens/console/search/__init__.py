"""Searches: questions, answers, exports, saved searches, alarms."""
