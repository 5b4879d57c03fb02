"""The gateway as Anthropic's own SDK sees it."""

import asyncio

import anthropic
import pytest
from conftest import QUESTION, SCHEMA, TURNS

TOOL = {"name": "bash", "description": "Run.", "input_schema": SCHEMA}
USER = [{"role": "user", "content": QUESTION}]
ASK = {"model": "policy", "max_tokens": 2000, "messages": USER, "tools": [TOOL]}
PLAIN = {"model": "plain", "max_tokens": 2000, "messages": USER}


def client(rollout, **options):
    return anthropic.Anthropic(base_url=rollout.url, api_key="sk-none", **{"max_retries": 0, **options})


def whole(message, turn):
    thinking, text, arguments = turn
    blocks = {b.type: b for b in message.content}
    assert [b.type for b in message.content] == ["thinking", "text"] + (["tool_use"] if arguments else [])
    assert blocks["thinking"].thinking.strip() == thinking
    assert blocks["thinking"].signature
    assert blocks["text"].text.strip() == text
    assert message.stop_reason == ("tool_use" if arguments else "end_turn")
    if arguments:
        assert blocks["tool_use"].input == arguments
    return blocks


@pytest.mark.parametrize("stream", [False, True])
def test_turns_with_a_tool(rollout, stream):
    c = client(rollout)
    history = list(USER)
    for turn in TURNS:
        ask = {**ASK, "messages": history, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        if stream:
            with c.messages.stream(**ask) as s:
                m = s.get_final_message()
        else:
            m = c.messages.create(**ask)
        blocks = whole(m, turn)
        history.append({"role": "assistant", "content": m.content})
        if turn[2]:
            history.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": blocks["tool_use"].id, "content": "été.txt"}]})
        assert m.usage.output_tokens > 0
    _, second = rollout.agrees(2)
    assert second["metadata"]["gateway"]["anchors"]


def test_stream_helper_order(rollout):
    kinds, text, thinking, partial = [], "", "", ""
    with client(rollout).messages.stream(**ASK) as stream:
        for event in stream:
            kinds.append(event.type)
            text += event.text if event.type == "text" else ""
            thinking += event.thinking if event.type == "thinking" else ""
            partial += event.partial_json if event.type == "input_json" else ""
        final = stream.get_final_message()
    whole(final, TURNS[0])
    assert kinds[0] == "message_start" and kinds.count("message_start") == 1
    assert kinds[-1] == "message_stop"
    assert kinds.index("message_delta") > max(i for i, k in enumerate(kinds) if k == "content_block_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    order = ["thinking", "signature", "text", "input_json"]
    assert [kinds.index(k) for k in order] == sorted(kinds.index(k) for k in order)
    assert (text.strip(), thinking.strip()) == (TURNS[0][1], TURNS[0][0])
    assert partial
    rollout.agrees(1)


def test_raw_events(rollout):
    """As create(stream=True) gives them: a block opens empty, deltas belong to the open one."""
    opened = None
    usage = None
    for event in client(rollout).messages.create(**ASK, stream=True):
        if event.type == "message_start":
            usage = event.message.usage
        if event.type == "content_block_start":
            assert opened is None
            opened = event.index
        if event.type == "content_block_delta":
            assert event.index == opened
        if event.type == "content_block_stop":
            assert event.index == opened
            opened = None
    (trace,) = rollout.agrees(1)
    assert usage.input_tokens == len(trace["prompt_token_ids"])


def test_count_tokens(rollout):
    c = client(rollout)
    counted = c.messages.count_tokens(model="policy", messages=USER, tools=[TOOL], system="Be brief.").input_tokens
    c.messages.create(**ASK, system="Be brief.")
    (trace,) = rollout.agrees(1)
    assert counted == len(trace["prompt_token_ids"])


def test_stop_reasons(rollout):
    c = client(rollout)
    assert c.messages.create(**{**PLAIN, "max_tokens": 3}).stop_reason == "max_tokens"
    m = c.messages.create(**PLAIN, stop_sequences=["answer"])
    assert (m.stop_reason, m.stop_sequence, m.content[0].text) == ("stop_sequence", "answer", "A plain ")
    rollout.agrees(2)


def test_tool_runner(rollout):
    """The SDK's own loop over tools ends by itself."""
    asked = []

    @anthropic.beta_tool
    def bash(command: str) -> str:
        """Run a command.

        Args:
            command: what to run
        """
        asked.append(command)
        return "été.txt"

    final = client(rollout).beta.messages.tool_runner(model="policy", max_tokens=2000, messages=USER, tools=[bash]).until_done()
    assert asked == ["ls -a"]
    whole(final, TURNS[1])
    rollout.agrees(2)


def test_raw_response_names_the_trace(rollout):
    c = client(rollout)
    raw = c.messages.with_raw_response.create(**PLAIN)
    parsed = raw.parse()
    (trace,) = rollout.agrees(1)
    assert raw.headers["request-id"] == parsed._request_id == trace["trace_id"]


def test_errors(rollout):
    c = client(rollout)
    with pytest.raises(anthropic.BadRequestError) as e:
        c.messages.create(model="policy", max_tokens=10, messages=[])
    assert e.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError):
        c.messages.create(**{**PLAIN, "model": "nobody"})
    with pytest.raises(anthropic.AuthenticationError):
        client(rollout).with_options(api_key="ick_" + "0" * 64).messages.create(**PLAIN)
    with pytest.raises(anthropic.PermissionDeniedError):
        anthropic.Anthropic(base_url=rollout.url + "-other", api_key=rollout.key()).messages.create(**PLAIN)
    with pytest.raises(anthropic.BadRequestError, match="too much at once"):
        c.messages.create(**{**PLAIN, "model": "refuses"})
    with pytest.raises(anthropic.APIStatusError) as e:
        c.messages.create(**{**PLAIN, "model": "busy"})
    assert e.value.status_code in (503, 529)
    assert e.value.body["error"]["type"] == "overloaded_error"
    assert e.value.response.headers["retry-after"] == "1"
    with pytest.raises(anthropic.InternalServerError):
        c.messages.create(**{**PLAIN, "model": "broken"}, stream=True)
    assert {t["status"] for t in rollout.settled(3)} == {"upstream_error"}


def test_cut_stream_raises(rollout):
    with pytest.raises((anthropic.APIStatusError, anthropic.APIConnectionError)):
        with client(rollout).messages.stream(**{**PLAIN, "model": "cut"}) as stream:
            stream.get_final_message()
    (trace,) = rollout.agrees(1, "upstream_error")
    assert len(trace["response_token_ids"]) == 5


def test_client_leaves(rollout):
    with client(rollout).messages.create(**{**PLAIN, "model": "endless"}, stream=True) as stream:
        for _ in zip(range(6), stream):
            pass
    rollout.agrees(1, "client_gone")


def test_async(rollout):
    async def run():
        async with anthropic.AsyncAnthropic(base_url=rollout.url, auth_token="sk-none") as c:
            async def streamed():
                async with c.messages.stream(**PLAIN) as stream:
                    return "".join([text async for text in stream.text_stream])

            async def plain():
                return (await c.messages.create(**PLAIN)).content[0].text

            return await asyncio.gather(*[f() for f in (streamed, plain) for _ in range(8)])

    assert set(asyncio.run(run())) == {"A plain answer."}
    rollout.agrees(16)


def test_models(rollout):
    c = client(rollout)
    assert {"policy", "plain"} <= {m.id for m in c.models.list()}
    assert c.models.retrieve("policy").id == "policy"
