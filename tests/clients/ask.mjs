// Asks a served host through Vercel's AI SDK, and prints what came back as JSON.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [base, apiKey] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: `${base}/v1`, apiKey });
const anthropic = createAnthropic({ baseURL: `${base}/v1`, apiKey });
const compatible = createOpenAICompatible({ name: "remit", baseURL: `${base}/v1`, apiKey });
const models = {
  chat: (name) => openai.chat(name),
  responses: (name) => openai.responses(name),
  anthropic: (name) => anthropic(name),
  compatible: (name) => compatible(name),
};

async function whole(model, prompt) {
  const { text, usage, finishReason } = await generateText({ model, system: "Be kind.", prompt });
  return { text, finishReason, inputTokens: usage.inputTokens, outputTokens: usage.outputTokens };
}

async function streamed(model, prompt) {
  const errors = [];
  const result = streamText({ model, prompt, onError: ({ error }) => errors.push(String(error)) });
  const parts = {};
  for await (const part of result.fullStream) {
    parts[part.type] = (parts[part.type] ?? "") + (part.text ?? "");
  }
  return { text: parts["text-delta"], reasoning: parts["reasoning-delta"] ?? "", errors };
}

async function failing(model) {
  try {
    await generateText({ model, prompt: "FAIL it.", maxRetries: 0 });
    return null;
  } catch (error) {
    return { status: error.statusCode, retryable: error.isRetryable, message: error.message };
  }
}

const found = {};
for (const [name, make] of Object.entries(models)) {
  found[name] = {
    whole: await whole(make("reviewed"), "Mend it."),
    streamed: await streamed(make("reviewed"), "Mend it."),
    live: await streamed(make("answer"), "NAME it."),
    failing: await failing(make("answer")),
  };
}
console.log(JSON.stringify(found));
