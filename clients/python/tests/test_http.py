"""When requests are sent again, and how ids get into paths."""

from __future__ import annotations

import email.utils
import time

import httpx
import pytest
from fake import drops, problem, says, serving, some_table
from hypothesis import given
from hypothesis import strategies as st

import icecore
from icecore._http import FIRST_WAIT, LONGEST_RETRY_AFTER, LONGEST_WAIT, Broken, Call, Retry, retry_after, segment

CALL: Call[None] = Call("POST", "/x", lambda answer: None)


def busy(after: str | None = None, status: int = 503) -> icecore.ProblemError:
    return icecore.ProblemError(status, "busy", "", retry_after=after)


def test_waits_grow_and_stay_bounded() -> None:
    retry = Retry(None)
    waits = [retry.delay(CALL, busy()) for _ in range(40)]
    for n, wait in enumerate(waits):
        most = min(LONGEST_WAIT, FIRST_WAIT * 2**n)
        assert wait is not None and most / 2 <= wait <= most
    assert len(set(waits)) == 40  # jitter


@pytest.mark.parametrize(("said", "low", "high"), [("0", 0, 0.1), ("7", 7, 7.1), ("1e9", LONGEST_RETRY_AFTER, LONGEST_RETRY_AFTER + 0.1), ("-3", 0, 0.1)])
def test_retry_after_is_kept_to_but_not_for_ever(said: str, low: float, high: float) -> None:
    wait = Retry(None).delay(CALL, busy(said))
    assert wait is not None and low <= wait <= high


def test_retry_after_as_a_date() -> None:
    seconds = retry_after(email.utils.formatdate(time.time() + 3600, usegmt=True))
    assert seconds is not None and 3500 < seconds <= 3600
    assert retry_after(email.utils.formatdate(0, usegmt=True)) == 0.0
    assert retry_after("soon") is None and retry_after(None) is None


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500, 501])
def test_only_busy_answers_are_tried_again(status: int) -> None:
    assert Retry(None).delay(CALL, busy("0", status)) is None


def test_the_time_for_trying_again_is_bounded() -> None:
    now = [100.0]
    retry = Retry(10.0, lambda: now[0])
    while (wait := retry.delay(CALL, busy("3"))) is not None:
        now[0] += wait
    assert 106.0 <= now[0] <= 110.0
    assert Retry(0.0).delay(CALL, busy("0")) is None


def test_what_may_be_repeated() -> None:
    sql: Call[None] = Call("POST", "/v1/sql", lambda answer: None, repeatable=False)
    for cause, again in ((httpx.ReadTimeout(""), False), (httpx.ReadError(""), False), (httpx.ConnectError(""), True), (httpx.ConnectTimeout(""), True)):
        assert (Retry(None).delay(sql, Broken(cause)) is not None) is again
        assert Retry(None).delay(CALL, Broken(cause)) is not None
    assert Retry(None).delay(CALL, Broken(httpx.UnsupportedProtocol(""))) is None
    assert Retry(None).delay(sql, busy()) is not None


def test_a_long_poll_has_a_longer_timeout() -> None:
    from icecore._http import request_of
    from icecore.lease import request

    asked = request_of(request("learner", {"wait": 30.0}), "http://x", 20.0)
    assert (asked["timeout"].read, asked["timeout"].write) == (50.0, 20.0)


def test_the_key_is_sent_and_not_shown() -> None:
    with serving(some_table()) as fake, icecore.Client(fake.url, api_key="secret") as c:
        seen: list[str] = []

        def look(handler: object) -> None:
            seen.append(handler.headers["Authorization"])  # type: ignore[attr-defined]

        fake.fail("lease$", look)
        batch = c.lease("learner")
        assert batch
        assert seen == ["Bearer secret"] and "secret" not in repr(c)


def test_something_that_is_no_icecore() -> None:
    with serving() as fake, icecore.Client(fake.url, retry_seconds=0.0) as c:
        fake.fail("rewards", says((200, {"Content-Type": "text/html"}, b"<html>")), says((302, {"Location": "/login"}, b"")), says((403, {}, b"go away")))
        reward = {"reward_id": "a", "rollout_id": "b", "value": 1}
        with pytest.raises(icecore.StreamError, match="JSON"):
            c.post_rewards(reward)
        with pytest.raises(icecore.ProblemError, match="302"):
            c.post_rewards(reward)
        with pytest.raises(icecore.ProblemError, match="go away"):
            c.post_rewards(reward)


def test_answers_that_do_not_match_what_was_sent() -> None:
    with serving() as fake, icecore.Client(fake.url, retry_seconds=0.0) as c:
        fake.fail("rewards", drops, says((200, {"Content-Type": "application/json"}, b'{"items": []}')), says(problem(429, "too_many_requests")))
        reward = {"reward_id": "a", "rollout_id": "b", "value": 1}
        with pytest.raises(icecore.ConnectionFailed):
            c.post_rewards(reward)
        with pytest.raises(icecore.StreamError, match="1 items were sent, and 0 answered"):
            c.post_rewards(reward)
        with pytest.raises(icecore.ProblemError, match="429"):
            c.post_rewards(reward)


def test_urls() -> None:
    with pytest.raises(ValueError, match="http://"):
        icecore.Client("127.0.0.1:7470")
    assert icecore.Client("http://x/").url == "http://x"


@given(st.text(min_size=1).filter(lambda s: s.isprintable()))
def test_an_id_is_one_element_of_a_path(text: str) -> None:
    url = httpx.URL(f"http://x/v1/rollouts/{segment(text)}/finish")
    parts = url.raw_path.decode().split("/")
    assert len(parts) == 5 and parts[-1] == "finish"


def test_ids_that_look_like_paths(shared_client: icecore.Client) -> None:
    for name in ("a/b", "a?b#c", "ä €", "100%", ".", "..", "...", "a b+c"):
        shared_client.put_rollout(name, task_id="paths")
        assert shared_client.rollout(name)["rollout_id"] == name


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'{"items": null}', b'{"items": [1]}', b'{"items": [{"index": 0, "id": "a"}]}',
                                  b'{"items": [{"index": 0, "id": "a", "status": "zzz"}]}', b"[" * 100_000])
def test_an_answer_that_is_none_is_an_error_of_ours(body: bytes) -> None:
    with serving() as fake, icecore.Client(fake.url) as client:
        fake.fail("traces", says((200, {"Content-Type": "application/json"}, body)))
        with pytest.raises(icecore.StreamError):
            client.post_traces([{"trace_id": "a", "rollout_id": "r"}])


@pytest.mark.parametrize("body", [b"[1]", b"[" * 100_000, b'"text"', b"\xff"])
def test_a_problem_that_is_none_is_an_error_of_ours(body: bytes) -> None:
    with serving() as fake, icecore.Client(fake.url) as client:
        fake.fail("status", says((409, {"Content-Type": "application/problem+json"}, body)))
        with pytest.raises(icecore.ProblemError) as e:
            client.status()
        assert e.value.code == "not_icecore"
