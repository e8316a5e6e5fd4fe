"""Remit runs a coding agent as a request: planned, sandboxed, reviewed, bounded, and accounted for.

Names are loaded when they are first used (PEP 562), so that ``import remit`` stays cheap.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
