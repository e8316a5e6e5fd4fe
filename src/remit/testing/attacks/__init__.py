"""Attacks on a sandbox, as data, and the world that they are tried in."""

from remit.testing.attacks._attack import Attack
from remit.testing.attacks._catalog import ATTACKS, GROUPS
from remit.testing.attacks._trying import KNOWN_OPEN, Tried, is_apart, try_attacks
from remit.testing.attacks._world import World, applies, has_control

__all__ = [
    "ATTACKS",
    "GROUPS",
    "KNOWN_OPEN",
    "Attack",
    "Tried",
    "World",
    "applies",
    "has_control",
    "is_apart",
    "try_attacks",
]
