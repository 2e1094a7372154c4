"""Schedules: when their slots are, and the role that triggers them."""
