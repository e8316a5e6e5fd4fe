"""Asks a served host through LiteLLM, in an environment of its own, and prints what came back as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Whole and streamed, as OpenAI's and as Anthropic's client."""
    import litellm  # pyright: ignore[reportMissingImports] - not in the environment that is checked

    base, key = sys.argv[1:]
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Mend it."}]
    found: dict[str, Any] = {}
    for name, address in (("openai/reviewed", f"{base}/v1"), ("anthropic/reviewed", base)):
        access = {"model": name, "api_base": address, "api_key": key}
        whole = litellm.completion(messages=messages, **access)
        stream = litellm.completion(messages=messages, stream=True, **access)
        found[name] = {
            "whole": whole.choices[0].message.content,
            "total_tokens": whole.usage.total_tokens,
            "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in stream),
        }
    access = {"model": "openai/answer", "api_base": f"{base}/v1", "api_key": key}
    response = litellm.responses(input="NAME it.", **access)
    found["responses"] = response.output[-1].content[0].text
    try:
        litellm.completion(messages=[{"role": "user", "content": "FAIL it."}], num_retries=0, **access)
    except Exception as error:  # noqa: BLE001 - whatever it makes of the answer
        found["failed"] = {"status": getattr(error, "status_code", None), "message": str(error)}
    sys.stdout.write(json.dumps(found) + "\n")


main()
