"""How large a request may be. Each bound is a constant, and the refusal names the field and the bound."""

from __future__ import annotations

from typing import Final

MAX_TEXT_BYTES: Final = 1_048_576
"""UTF-8 bytes of all texts of a request together: prompt, content, instructions, earlier turns."""
MAX_IMAGES: Final = 20
"""Pictures in a request."""
MAX_IMAGE_BYTES: Final = 20 * 1_048_576
"""Characters of all pictures' data URLs together."""
MAX_PARTS: Final = 1_000
"""Parts in `content`."""
MAX_TURNS: Final = 2_000
"""Turns in `earlier`."""
MAX_METADATA_BYTES: Final = 16_384
"""UTF-8 bytes of the metadata as compact JSON."""
MAX_METADATA_DEPTH: Final = 8
"""How deep lists and objects may nest in metadata and in a stage's options."""
MAX_OPTIONS_BYTES: Final = 65_536
"""UTF-8 bytes of one stage's options as compact JSON."""
MAX_NAME_CHARS: Final = 512
"""Characters of a name: binding, model, workspace, branch."""
MAX_WEBHOOK_CHARS: Final = 2_048
"""Characters of a webhook's address."""
