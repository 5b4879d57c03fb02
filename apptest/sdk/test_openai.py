"""The gateway as OpenAI's own SDK sees it."""

import asyncio
import json

import openai
import pytest
from conftest import QUESTION, SCHEMA, TURNS
from pydantic import BaseModel

CHAT_TOOL = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
TOOL = {"type": "function", "name": "bash", "strict": False, "parameters": SCHEMA}
USER = [{"role": "user", "content": QUESTION}]


class Sum(BaseModel):
    sum: int


def client(rollout, **options):
    return openai.OpenAI(base_url=rollout.url + "/v1", api_key="sk-none", **{"max_retries": 0, **options})


def test_chat_with_a_tool(rollout):
    c = client(rollout)
    history = list(USER)
    for thinking, text, arguments in TURNS:
        a = c.chat.completions.create(model="policy", messages=history, tools=[CHAT_TOOL])
        m = a.choices[0].message
        assert m.reasoning_content.strip() == thinking
        assert m.content.strip() == text
        assert a.choices[0].finish_reason == ("tool_calls" if arguments else "stop")
        history.append(m.model_dump(exclude_none=True))
        if arguments:
            assert json.loads(m.tool_calls[0].function.arguments) == arguments
            history.append({"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "été.txt"})
        assert a.usage.prompt_tokens + a.usage.completion_tokens == a.usage.total_tokens
    first, second = rollout.agrees(2)
    assert second["metadata"]["gateway"]["continuity"]["label"] == "extends"
    assert len(first["response_token_ids"]) < second["usage"]["prompt_tokens"]


def test_chat_streams(rollout):
    seen, finish, usage = "", [], None
    for chunk in client(rollout).chat.completions.create(
            model="policy", messages=USER, tools=[CHAT_TOOL], stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            seen += choice.delta.content or ""
            finish += [choice.finish_reason] if choice.finish_reason else []
    assert seen.strip() == TURNS[0][1]
    assert finish == ["tool_calls"]
    (trace,) = rollout.agrees(1)
    assert usage.completion_tokens == len(trace["response_token_ids"])


def test_chat_stream_helper(rollout):
    kinds = []
    with client(rollout).chat.completions.stream(model="policy", messages=USER, tools=[CHAT_TOOL]) as stream:
        for event in stream:
            kinds.append(event.type)
        whole = stream.get_final_completion()
    assert kinds.index("content.delta") < kinds.index("content.done") < kinds.index("tool_calls.function.arguments.done")
    assert whole.choices[0].message.content.strip() == TURNS[0][1]
    assert json.loads(whole.choices[0].message.tool_calls[0].function.arguments) == TURNS[0][2]
    rollout.agrees(1)


@pytest.mark.parametrize("stream", [False, True])
def test_two_choices(rollout, stream):
    c = client(rollout)
    texts = {}
    if stream:
        for chunk in c.chat.completions.create(model="plain", messages=USER, n=2, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    else:
        for choice in c.chat.completions.create(model="plain", messages=USER, n=2).choices:
            texts[choice.index] = choice.message.content
    assert set(texts) == {0, 1}
    assert texts[0] != texts[1]
    traces = rollout.agrees(2)
    assert sorted(t["choice_index"] for t in traces) == [0, 1]
    assert len({t["seq"] for t in traces}) == 2


def test_logprobs_are_told(rollout):
    a = client(rollout).chat.completions.create(model="plain", messages=USER, logprobs=True, top_logprobs=2)
    told = [p.logprob for p in a.choices[0].logprobs.content]
    (trace,) = rollout.agrees(1)
    assert told == pytest.approx(trace["response_logprobs"][:len(told)], abs=1e-5)
    assert len(told) >= len(trace["response_token_ids"]) - 1


def test_structured(rollout):
    c = client(rollout)
    a = c.chat.completions.parse(model="json", messages=USER, response_format=Sum)
    assert a.choices[0].message.parsed == Sum(sum=4)
    assert c.responses.parse(model="json", input=USER, text_format=Sum).output_parsed == Sum(sum=4)
    with pytest.raises(openai.LengthFinishReasonError):
        c.chat.completions.parse(model="json", messages=USER, response_format=Sum, max_tokens=2)
    rollout.agrees(3)


def test_raw_response_names_the_trace(rollout):
    c = client(rollout)
    raw = c.chat.completions.with_raw_response.create(model="plain", messages=USER)
    parsed = raw.parse()
    other = c.responses.create(model="plain", input="hi")
    traces = rollout.agrees(2)
    assert [raw.headers["x-request-id"], other._request_id] == [t["trace_id"] for t in traces]
    assert parsed._request_id == traces[0]["trace_id"]


def test_responses_with_a_tool(rollout):
    c = client(rollout)
    history = list(USER)
    for thinking, text, arguments in TURNS:
        r = c.responses.create(model="policy", input=history, tools=[TOOL], store=False, include=["reasoning.encrypted_content"])
        items = {item.type: item for item in r.output}
        assert items["reasoning"].content[0].text.strip() == thinking
        assert items["reasoning"].encrypted_content
        assert r.output_text.strip() == text
        assert r.status == "completed"
        history += [item.model_dump(exclude_none=True) for item in r.output]
        if arguments:
            call = items["function_call"]
            assert json.loads(call.arguments) == arguments
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": "été.txt"})
    _, second = rollout.agrees(2)
    assert second["metadata"]["gateway"]["continuity"]["label"] == "extends"
    assert second["metadata"]["gateway"]["anchors"]


def test_responses_stream_helper(rollout):
    kinds, numbers, items = [], [], {}
    with client(rollout).responses.stream(model="policy", input=USER, tools=[TOOL]) as stream:
        for event in stream:
            kinds.append(event.type)
            numbers.append(event.sequence_number)
            if event.type == "response.output_item.added":
                items[event.output_index] = event.item.id
            if event.type == "response.output_item.done":
                assert items[event.output_index] == event.item.id
        final = stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 3
    order = ["response.reasoning_text.delta", "response.reasoning_text.done", "response.output_text.delta", "response.output_text.done",
             "response.function_call_arguments.delta", "response.function_call_arguments.done"]
    assert [kinds.index(k) for k in order] == sorted(kinds.index(k) for k in order)
    assert [item.id for item in final.output] == [items[i] for i in range(3)]
    assert final.output_text.strip() == TURNS[0][1]
    rollout.agrees(1)


def test_responses_cut_by_length(rollout):
    r = client(rollout).responses.create(model="plain", input=USER, max_output_tokens=3)
    assert (r.status, r.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    (trace,) = rollout.agrees(1)
    assert trace["finish_reason"] == "length"


def test_state_is_not_kept(rollout):
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client(rollout).responses.create(model="policy", input="hi", previous_response_id="resp_1")


def test_errors(rollout):
    c = client(rollout)
    with pytest.raises(openai.BadRequestError) as e:
        c.chat.completions.create(model="policy", messages=[])
    assert e.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as e:
        c.chat.completions.create(model="nobody", messages=USER)
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        client(rollout).with_options(api_key="ick_" + "0" * 64).responses.create(model="policy", input="hi")
    key = rollout.key()
    with pytest.raises(openai.PermissionDeniedError):
        openai.OpenAI(base_url=rollout.url + "-other/v1", api_key=key).responses.create(model="policy", input="hi")
    with pytest.raises(openai.BadRequestError, match="too much at once"):
        c.chat.completions.create(model="refuses", messages=USER)
    with pytest.raises(openai.InternalServerError) as e:
        c.chat.completions.create(model="busy", messages=USER)
    assert e.value.status_code == 503
    assert e.value.response.headers["retry-after"] == "1"
    with pytest.raises(openai.InternalServerError):
        c.responses.create(model="broken", input="hi", stream=True)
    traces = rollout.settled(3)
    assert {t["status"] for t in traces} == {"upstream_error"}


def test_sdk_retries(rollout):
    """The SDK's own retry is another trace, linked with the one before."""
    model = "flaky-" + rollout.id[-1]  # each script fails once
    a = client(rollout, max_retries=2).chat.completions.create(model=model, messages=USER)
    assert a.choices[0].message.content == "at last"
    first, second = rollout.settled(2)
    assert (first["status"], second["status"]) == ("upstream_error", "ok")
    told = second["metadata"]["gateway"]
    assert (told["retry_of"], told["attempt"]) == (first["trace_id"], 2)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_cut_stream_raises(rollout, api):
    c = client(rollout)
    seen = 0
    with pytest.raises((openai.APIError, openai.APIConnectionError)):
        if api == "chat":
            stream = c.chat.completions.create(model="cut", messages=USER, stream=True)
        else:
            stream = c.responses.create(model="cut", input=USER, stream=True)
        for _ in stream:
            seen += 1
    assert seen > 0
    (trace,) = rollout.agrees(1, "upstream_error")
    assert len(trace["response_token_ids"]) == 5


def test_client_leaves(rollout):
    with client(rollout).chat.completions.create(model="endless", messages=USER, stream=True) as stream:
        for _ in zip(range(4), stream):
            pass
    (trace,) = rollout.agrees(1, "client_gone")
    assert trace["response_token_ids"]


def test_async(rollout):
    async def run():
        async with openai.AsyncOpenAI(base_url=rollout.url + "/v1", api_key="sk-none") as c:
            async def streamed():
                return "".join([chunk.choices[0].delta.content or "" async for chunk in
                                await c.chat.completions.create(model="plain", messages=USER, stream=True) if chunk.choices])

            async def helped():
                async with c.responses.stream(model="plain", input=USER) as stream:
                    return (await stream.get_final_response()).output_text

            return await asyncio.gather(*[f() for f in (streamed, helped) for _ in range(8)])

    assert set(asyncio.run(run())) == {"A plain answer."}
    assert sorted(t["seq"] for t in rollout.agrees(16)) == list(range(1, 17))


def test_models(rollout):
    c = client(rollout)
    assert {"policy", "plain"} <= {m.id for m in c.models.list()}
    assert c.models.retrieve("policy").owned_by == "icecore"
    with pytest.raises(openai.NotFoundError):
        c.models.retrieve("nobody")


def test_key_as_api_key(rollout):
    """With a minted key the path may leave the rollout open."""
    base = rollout.url.replace(rollout.id, "-") + "/v1"
    openai.OpenAI(base_url=base, api_key=rollout.key()).chat.completions.create(model="plain", messages=USER)
    rollout.agrees(1)
