"""The gateway as Google's own SDK sees it."""

import asyncio

import pytest
from conftest import QUESTION, TURNS
from google import genai
from google.genai import errors, types


@pytest.fixture
def client(rollout):
    with genai.Client(api_key="none", http_options=types.HttpOptions(base_url=rollout.url)) as c:
        yield c


def bash(command: str) -> str:
    """Runs a command."""
    assert command == "ls -a"
    return "été.txt"


def test_calls_by_itself(rollout, client):
    """The SDK runs the function that the model asks for, and asks again."""
    a = client.models.generate_content(model="policy", contents=QUESTION, config=types.GenerateContentConfig(tools=[bash]))
    assert a.text.strip() == TURNS[1][1]
    assert a.candidates[0].finish_reason == types.FinishReason.STOP
    rollout.agrees(2)


def test_stream(rollout, client):
    chunks = list(client.models.generate_content_stream(model="plain", contents=QUESTION))
    assert "".join(c.text or "" for c in chunks) == "A plain answer."
    assert len(chunks) > 3
    (trace,) = rollout.agrees(1)
    assert chunks[-1].usage_metadata.prompt_token_count == len(trace["prompt_token_ids"])


def test_chat(rollout, client):
    chat = client.chats.create(model="policy", config=types.GenerateContentConfig(system_instruction="Be brief."))
    chat.send_message(QUESTION)
    for _ in chat.send_message_stream("and now?"):
        pass
    rollout.agrees(2)


def test_count_tokens(rollout, client):
    counted = client.models.count_tokens(model="plain", contents=QUESTION).total_tokens
    client.models.generate_content(model="plain", contents=QUESTION)
    (trace,) = rollout.agrees(1)
    assert counted == len(trace["prompt_token_ids"])


def test_errors(rollout, client):
    with pytest.raises(errors.ClientError) as e:
        client.models.generate_content(model="nobody", contents=QUESTION)
    assert (e.value.code, e.value.status) == (404, "NOT_FOUND")
    with pytest.raises(errors.ServerError) as e:
        client.models.generate_content(model="broken", contents=QUESTION)
    assert e.value.code >= 500
    with pytest.raises(Exception):  # what breaks depends on where the stream stood
        for _ in client.models.generate_content_stream(model="cut", contents=QUESTION):
            pass
    assert {t["status"] for t in rollout.settled(2)} == {"upstream_error"}


def test_async_and_models(rollout, client):
    async def run():
        a = await client.aio.models.generate_content(model="plain", contents=QUESTION)
        streamed = [chunk.text or "" async for chunk in await client.aio.models.generate_content_stream(model="plain", contents=QUESTION)]
        return a.text, "".join(streamed)

    assert asyncio.run(run()) == ("A plain answer.", "A plain answer.")
    assert "models/policy" in [m.name for m in client.models.list()]
    rollout.agrees(2)
