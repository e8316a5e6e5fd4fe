"""Asks a served host through one library for agents, in an environment of its own, and prints the answer."""

# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import sys
from typing import Any


async def pydantic_ai(base: str, key: str, prompt: str) -> str:
    """pydantic-ai, as OpenAI's client."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIResponsesModel("reviewed", provider=OpenAIProvider(base_url=f"{base}/v1", api_key=key))
    return (await Agent(model, system_prompt="Be kind.").run(prompt)).output


async def pydantic_ai_anthropic(base: str, key: str, prompt: str) -> str:
    """pydantic-ai, as Anthropic's client."""
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    model = AnthropicModel("reviewed", provider=AnthropicProvider(base_url=base, api_key=key))
    async with Agent(model, system_prompt="Be kind.").run_stream(prompt) as stream:
        return await stream.get_output()


async def langchain(base: str, key: str, prompt: str) -> str:
    """langchain-openai, as a stream."""
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="reviewed", base_url=f"{base}/v1", api_key=key)
    return "".join([str(chunk.content) async for chunk in model.astream(prompt)])


async def openai_agents(base: str, key: str, prompt: str) -> str:
    """openai-agents."""
    from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{base}/v1", api_key=key)
    agent = Agent(name="one", model=OpenAIResponsesModel(model="reviewed", openai_client=client))
    return str((await Runner.run(agent, prompt)).final_output)


ASKS: dict[str, Any] = {
    one.__name__: one for one in (pydantic_ai, pydantic_ai_anthropic, langchain, openai_agents)
}

if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    sys.stdout.write(asyncio.run(ASKS[name](*rest)) + "\n")
