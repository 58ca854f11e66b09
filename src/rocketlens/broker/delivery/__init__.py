"""Delivers messages to consumers: pulls and held pulls, delays, timers, transactions."""
