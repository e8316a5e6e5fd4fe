"""Names for web addresses."""

import re


def slug(title):
    """The title in lower case, its words joined by dashes."""
    return re.sub(r"[^a-z0-9]", "-", title.lower())
