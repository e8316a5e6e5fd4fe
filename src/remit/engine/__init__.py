"""Who takes a run up: the port of durable dispatch, and its embedded form."""

from remit.engine._embedded import EmbeddedEngine

__all__ = ["EmbeddedEngine"]
