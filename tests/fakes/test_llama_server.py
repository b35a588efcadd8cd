import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.llama_server import CHAT, FAULTS, Calls, Fake, Json, render, running, tokenize
from tests.recordings import load, transport

TERSE = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Say hello."}]
COUNT = f"{CHAT}/input_tokens"
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def shape(value: Any) -> set[str]:  # noqa: ANN401 - any JSON
    """Every path of keys in it; the items of a list count as one."""
    if isinstance(value, dict):
        return {path for key, item in value.items() for path in (key, *(f"{key}.{rest}" for rest in shape(item)))}
    if isinstance(value, list):
        return {f"[].{path}" for item in value for path in shape(item)}
    return set()


def events(text: str) -> list[Json]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def ask(server: Fake, path: str, body: Json | None = None, **headers: str) -> httpx.Response:
    return httpx.request("POST" if body else "GET", server.url + path, json=body, headers=headers, timeout=5)


def chat(server: Fake, **more: object) -> httpx.Response:
    return ask(server, CHAT, {"messages": [{"role": "user", "content": "Say hello."}], **more})


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("02-health-ok", {}),
        ("03-props-smol-c4096-np1", {}),
        ("04-v1-models-smol-c4096", {}),
        ("06-slots-idle-fresh", {}),
        ("08-tokenize", {}),
        ("09-apply-template", {}),
        ("10-chat", {}),
        ("11-chat-stream-usage", {}),
        ("11b-chat-stream-nousage", {}),
        ("13-input-tokens-chat", {}),
        ("16d-chat-max-tokens-0", {}),
        ("01-health-loading", {"loading_for": 60}),
        ("01e-chat-loading", {"loading_for": 60}),
        ("24-kvunified-pool-overflow-0", {"fault": "error_mid_stream"}),
        ("40-404", {}),
        ("40c-no-messages", {}),
        ("40d-wrong-model-name", {}),
        ("51b-metrics-disabled", {}),
        ("60-key-health", {"api_key": "sekret"}),
        ("60c-key-props-nokey", {"api_key": "sekret"}),
        ("60d-key-props-bad", {"api_key": "sekret"}),
        ("60e-key-props-good", {"api_key": "sekret"}),
        ("60f-key-chat-nokey", {"api_key": "sekret"}),
        ("70b-router-v1-models-initial", {"fault": "router"}),
        ("71-router-props-nomodel", {"fault": "router"}),
        ("71c-router-slots-nomodel", {"fault": "router"}),
        ("72b-router-props-unknown", {"fault": "router"}),
        ("73-router-chat-unknown-model", {"fault": "router"}),
        ("73b-router-chat-nomodel", {"fault": "router"}),
        ("72-router-props-unloaded-noautoload", {"fault": "router", "model": "SmolLM2-135M-Instruct.Q4_1"}),
    ],
)
def test_it_says_what_a_real_server_said(name: str, config: Json) -> None:
    recording = load(name)
    sent, said = recording["request"], recording["response"]
    with running(Fake(reply="I'm glad you're here. I'm a creative AI.", **config)) as server:
        body = sent["body"] and {"messages": TERSE} | sent["body"]
        body = sent["body"] if name.startswith("40c") else body
        answer = ask(server, sent["path"], body, **sent["headers"])
    assert answer.status_code == said["status"]
    assert {key.lower() for key in said["headers"]} == set(answer.headers)
    assert {answer.headers[key] for key in ("server", "content-type")} <= set(said["headers"].values())
    if "sse" in said:
        assert answer.text.endswith("\n\ndata: [DONE]\n\n")
        assert [shape(event) for event in events(answer.text)] == [
            shape(event) for event in events("\n".join(said["sse"]))
        ]
    else:
        assert shape(answer.json()) == shape(said["json"])
    if said["status"] >= 400 or name.startswith(("02", "09", "71")):
        assert answer.json() == said["json"]


@pytest.mark.parametrize("tokens", [511, 512, 513])
def test_the_window_ends_where_the_real_one_ends(tokens: int) -> None:
    said = load(f"22-prompt-exactly-{tokens}-of-512")["response"]
    with running(Fake(n_ctx=512, prompt_tokens=lambda _: tokens)) as server:
        answer = chat(server)
    assert answer.status_code == said["status"]
    if tokens < 512:
        assert answer.json()["usage"]["completion_tokens"] == said["json"]["tokens_predicted"] == 1
        assert answer.json()["choices"][0]["finish_reason"] == "length"
    else:
        assert answer.json() == said["json"]


def test_an_answer_ends_with_the_window() -> None:
    said = events("\n".join(load("21c-end-of-window-stream")["response"]["sse"]))
    with running(Fake(n_ctx=512, reply="word " * 100, prompt_tokens=lambda _: 491)) as server:
        heard = events(chat(server, **USAGE).text)
    assert heard[-2]["choices"] == said[-2]["choices"]
    assert heard[-1]["usage"]["total_tokens"] == said[-1]["usage"]["total_tokens"] == 512
    assert heard[-1]["usage"]["completion_tokens"] == said[-1]["usage"]["completion_tokens"] == 21


def test_counting_agrees_with_the_bill() -> None:
    body = {"messages": TERSE, "tools": [{"type": "function", "function": {"name": "look"}}]}
    with running(Fake(slots=2)) as server:
        counted = ask(server, COUNT, body).json()["input_tokens"]
        assert counted == ask(server, CHAT, body).json()["usage"]["prompt_tokens"] == len(render(body))
        assert ask(server, COUNT, {"messages": TERSE}).json()["input_tokens"] == 18
        assert ask(server, COUNT, {"messages": [{"role": "user", "content": "word " * 9000}]}).status_code == 200
        assert ask(server, "/props").json()["total_slots"] == len(ask(server, "/slots").json()) == 2


def test_a_rendered_prompt_has_the_tokens_that_are_counted() -> None:
    call = {"function": {"name": "look", "arguments": '{"at": "it"}'}}
    body: Json = {
        "messages": [
            *TERSE,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": ""},
        ],
        "tools": [{"type": "function", "function": {"name": "look"}}],
    }
    with running(Fake(fault="older")) as server:
        assert ask(server, COUNT, body).status_code == 404
        prompt = ask(server, "/apply-template", body).json()["prompt"]
        tokens = {
            special: len(ask(server, "/tokenize", {"content": prompt, "parse_special": special}).json()["tokens"])
            for special in (True, False)
        }
    assert tokens[True] == len(render(body)) < tokens[False]


def test_a_prefix_is_computed_once() -> None:
    with running(Fake(reply=["One two.", "Three."])) as server:
        first = ask(server, CHAT, {"messages": TERSE}).json()
        again = [*TERSE, {"role": "assistant", "content": "One two."}, {"role": "user", "content": "More"}]
        second = ask(server, CHAT, {"messages": again}).json()
        third = ask(server, CHAT, {"messages": again}).json()
    assert [first["timings"]["cache_n"], second["timings"]["cache_n"]] == [0, 18 + 3]
    assert third["timings"]["prompt_n"] == 1
    assert third["usage"]["prompt_tokens_details"]["cached_tokens"] == third["timings"]["cache_n"] == 29
    assert server.prefilled == [18, 30 - 21, 1]
    assert third["choices"][0]["message"]["content"] == "Three."


def test_the_answers_come_in_turn_and_thinking_apart() -> None:
    with running(Fake(reply=["a b", "c"], reply_thinking="hm m", tokens_per_piece=2)) as server:
        heard = [event["choices"][0]["delta"] for event in events(chat(server, stream=True).text)]
        assert heard == [{"role": "assistant", "content": None}, {"reasoning_content": "hm m"}, {"content": "a b"}, {}]
        assert chat(server, max_tokens=1).json()["choices"][0] == {
            "finish_reason": "length",
            "index": 0,
            "message": {"role": "assistant", "content": "", "reasoning_content": "hm"},
        }
    assert [body["messages"][0]["content"] for body in server.chats] == ["Say hello."] * 2


def test_a_schema_is_obeyed() -> None:
    properties = {
        "goal": {"type": "string", "minLength": 3},
        "done": {"type": "array", "minItems": 2, "items": {"type": "integer", "minimum": 4}},
        "sure": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "more": {"anyOf": [{"type": "object"}]},
        "optional": {"type": "string"},
    }
    schema = {"type": "object", "properties": properties, "required": [*properties][:-1]}
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    with running(Fake(reply=["Some text.", '{"mine": 1}'])) as server:
        texts = [
            chat(server, **more).json()["choices"][0]["message"]["content"]
            for more in ({"response_format": wanted}, {}, {"response_format": wanted})
        ]
    assert json.loads(texts[0]) == {"goal": "xxx", "done": [4, 4], "sure": False, "kind": "a", "more": {}}
    assert texts[1:] == ["Some text.", '{"mine": 1}']


def test_a_callable_may_leave_the_answer_to_the_fake() -> None:
    with running(Fake(reply=lambda body: body.get("say"))) as server:
        texts = [chat(server, say=say).json()["choices"][0]["message"]["content"] for say in ("this", None)]
        plain = chat(server, response_format={"type": "json_object"}).json()["choices"][0]["message"]["content"]
    assert [*texts, plain] == ["this", "Done.", "{}"]


LOOK = {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]}
TWICE = Calls("Let me see.", [("look", '{"at": "a"}'), ("look", "{}")])


def gathered(text: str) -> list[Json]:
    """The deltas of a stream, without the random ids."""
    deltas = [choice["delta"] for event in events(text) for choice in event["choices"]]
    for call in (call for delta in deltas for call in delta.get("tool_calls", [])):
        call.pop("id", None)
    return deltas


def test_calls_come_in_pieces_behind_the_text() -> None:
    """As llama-server b11549 streams them: all but the later pieces of the arguments are in the first."""
    with running(Fake(tools=True, reply=lambda _: TWICE, tokens_per_piece=4)) as server:
        heard = chat(server, **LOOK, **USAGE).text
        whole = chat(server, **LOOK).json()["choices"][0]
    assert gathered(heard) == [
        {"role": "assistant", "content": None},
        {"content": "Let me see."},
        {"tool_calls": [{"index": 0, "type": "function", "function": {"name": "look", "arguments": '{"at"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ': "a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
        {"tool_calls": [{"index": 1, "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {},
    ]
    assert [event["choices"][0]["finish_reason"] for event in events(heard)[:-1]] == [None] * 6 + ["tool_calls"]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] == TWICE.text
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in whole["message"]["tool_calls"]]
    assert calls == TWICE.calls
    assert len({call["id"] for call in whole["message"]["tool_calls"]}) == 2


def test_calls_that_do_not_fit_are_cut_off() -> None:
    kept = []
    with running(Fake(tools=True, reply=lambda _: TWICE)) as server:
        for limit in range(1, 20):  # 4 tokens of text; 10 and 3 of calls; and one that ends it
            answer = chat(server, **LOOK, max_tokens=limit).json()
            (choice,) = answer["choices"]
            calls = choice["message"].get("tool_calls", [])
            kept.append((len(calls), choice["finish_reason"]))
            assert answer["usage"]["completion_tokens"] == min(limit, 18)
    assert kept == [(0, "length")] * 4 + [(1, "length")] * 10 + [(2, "length")] * 3 + [(2, "tool_calls")] * 2


def test_what_was_called_is_the_prefix_of_what_follows() -> None:
    with running(Fake(tools=True, reply=lambda body: TWICE if len(body["messages"]) == 2 else "Done.")) as server:
        asked = ask(server, CHAT, {"messages": TERSE, **LOOK}).json()
        made = asked["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "It is."} for call in made["tool_calls"]]
        after = ask(server, CHAT, {"messages": [*TERSE, made, *results], **LOOK}).json()
    assert after["timings"]["cache_n"] == asked["usage"]["total_tokens"] - 1, "all but the end of text"
    assert after["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("config", "more"),
    [({"tools": True}, {}), ({"tools": False}, LOOK), ({"tools": True}, LOOK | {"tool_choice": "none"})],
)
def test_without_tools_only_the_text_is_said(config: Json, more: Json) -> None:
    with running(Fake(reply=lambda _: TWICE, **config)) as server:
        (choice,) = chat(server, **more).json()["choices"]
    assert choice == {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": TWICE.text}}


def test_tools_are_refused_as_a_real_server_refuses_them() -> None:
    """Seen with llama-server b11549: without Jinja; under a grammar; with arguments of old that are no JSON."""
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "look"}}]}

    def with_arguments(text: str) -> Json:
        called["tool_calls"][0]["function"]["arguments"] = text  # type: ignore[index]
        return {"messages": [*TERSE, called, {"role": "tool", "tool_call_id": "a", "content": "It is."}]}

    with running(Fake(tools=True)) as server:
        assert ask(server, "/props").json()["chat_template_caps"]["supports_tool_calls"] is True
        for text, status in (("{}", 200), ("[1]", 200), ("", 500), ('{"at":', 500)):
            for path in (CHAT, COUNT):
                assert ask(server, path, with_arguments(text)).status_code == status
        refused = chat(server, **LOOK, grammar='root ::= "a"')
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
        assert chat(server, **LOOK, grammar='root ::= "a"', tool_choice="none").status_code == 200
        server.fault = "no_tools"
        said = {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}
        for path in (CHAT, COUNT, "/apply-template"):
            answer = ask(server, path, {"messages": TERSE, **LOOK})
            assert (answer.status_code, answer.json()) == (500, {"error": said})
            assert ask(server, path, {"messages": TERSE}).status_code == 200
        assert ask(server, "/props").json()["chat_template_caps"]["supports_tools"] is True, "as a real one says"


def test_a_server_gets_ready() -> None:
    with running(Fake(loading_for=60)) as server:
        assert ask(server, "/health").status_code == 503
        server.loading_for = 0
        assert ask(server, "/health").json() == {"status": "ok"}


def test_the_router_loads_a_model_that_is_asked_for() -> None:
    with running(Fake(fault="router", n_ctx=1024)) as server:
        before = ask(server, "/v1/models").json()["data"][0]
        assert ask(server, "/props?model=fake-model").json()["default_generation_settings"]["n_ctx"] == 1024
        after = ask(server, "/v1/models").json()
    assert (before["status"]["value"], after["data"][0]["status"]["value"]) == ("unloaded", "loaded")
    assert before["id"] == "fake-model"
    assert before["status"]["args"][before["status"]["args"].index("--ctx-size") + 1] == "1024"
    assert after["data"][0]["meta"]["n_ctx"] == 1024
    assert shape(after) == shape(load("75-router-models-loaded")["response"]["json"])


def test_requests_are_kept() -> None:
    with running(Fake(metrics=True)) as server:
        ask(server, "/props?model=x", accept="nothing")
        chat(server, max_tokens=1)
        assert "prompt_tokens_total 10\n" in ask(server, "/metrics").text
    assert [(request.method, request.path) for request in server.requests] == [
        ("GET", "/props?model=x"),
        ("POST", CHAT),
        ("GET", "/metrics"),
    ]
    assert server.requests[0].headers["accept"] == "nothing"
    assert server.requests[1].body["max_tokens"] == 1
    assert not any(request.aborted for request in server.requests)


def test_a_client_that_leaves_is_noticed() -> None:
    with running(Fake(reply="word " * 50, delay=0.01)) as server:
        with httpx.stream("POST", server.url + CHAT, json={"messages": TERSE, "stream": True}) as answer:
            next(answer.iter_lines())
        deadline = time.monotonic() + 5
        while not server.requests[0].aborted:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert chat(server, max_tokens=1).status_code == 200  # and its slot is free again


def test_requests_queue_for_a_slot() -> None:
    with running(Fake(delay=0.02, reply="a b c d e")) as server:
        threads = [threading.Thread(target=chat, args=(server,)) for _ in range(2)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        while not ask(server, "/slots").json()[0]["is_processing"]:
            assert time.monotonic() < began + 5
        for thread in threads:
            thread.join()
        assert time.monotonic() - began > 2 * 5 * 0.019


def test_bodies_that_are_no_chat_are_refused() -> None:
    with running(Fake()) as server:
        for content in (b'{"messages": [', b"", b"[1]", b'{"messages": "x"}'):
            answer = httpx.post(server.url + CHAT, content=content)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        assert "line 1, column" in httpx.post(server.url + CHAT, content=b"{").json()["error"]["message"]
        assert load("40b-bad-json")["response"]["json"]["error"]["type"] == "invalid_request_error"


@given(st.text())
def test_tokens_join_to_the_text(text: str) -> None:
    assert "".join(tokenize(text)) == text


# Faults.


def test_html_and_redirects_come_on_every_path() -> None:
    with running(Fake(fault="html")) as server:
        assert ask(server, "/props").headers["content-type"] == chat(server).headers["content-type"] == "text/html"
        server.fault = "redirect_loop"
        assert ask(server, "/props").headers["location"] == "/props"
        with pytest.raises(httpx.TooManyRedirects):
            httpx.get(server.url + "/props", follow_redirects=True)


@pytest.mark.parametrize("fault", ["garbage", "truncated_json"])
def test_broken_json(fault: str) -> None:
    with running(Fake(fault=fault)) as server:
        for answer in (ask(server, "/props"), chat(server)):
            assert answer.status_code == 200
            with pytest.raises(ValueError, match=r"decode|delimiter|Unterminated|Expecting"):
                answer.json()


def test_not_http() -> None:
    with running(Fake(fault="not_http")) as server, pytest.raises(httpx.RemoteProtocolError):
        ask(server, "/props")


def test_endless_body() -> None:
    with running(Fake(fault="huge_json")) as server, httpx.stream("GET", server.url + "/props") as answer:
        read = 0
        for data in answer.iter_bytes():
            read += len(data)
            if read > 10_000_000:
                break


@pytest.mark.parametrize("fault", ["hang", "slow_headers"])
def test_an_answer_that_never_comes(fault: str) -> None:
    with running(Fake(fault=fault)) as server:
        began = time.monotonic()
        waiting = threading.Thread(target=_ignore_errors, args=(server,))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join(5)
    assert not waiting.is_alive()
    assert time.monotonic() - began < 3  # stopping the server does not wait for anyone


def _ignore_errors(server: Fake) -> None:
    with suppress(httpx.HTTPError):
        httpx.get(server.url + "/props", timeout=10)


def test_a_stream_that_dies() -> None:
    with running(Fake(fault="die_mid_stream", reply="a b c d")) as server:
        heard: list[bytes] = []
        with (
            httpx.stream("POST", server.url + CHAT, json={"messages": TERSE, "stream": True}) as answer,
            pytest.raises(httpx.RemoteProtocolError, match="without sending complete"),
        ):
            heard.extend(answer.iter_bytes())
        with pytest.raises(httpx.RemoteProtocolError):
            chat(server)
        assert ask(server, "/props").status_code == 200
    text = b"".join(heard).decode()
    assert [event["choices"][0]["delta"] for event in events(text)][1:] == [{"content": "a"}, {"content": " b"}]
    assert "[DONE]" not in text


def test_a_stream_that_ends_in_an_error() -> None:
    with running(Fake(fault="error_mid_stream", reply="a b c d")) as server:
        answer = chat(server, **USAGE)
    assert answer.status_code == 200
    assert events(answer.text)[-1] == load("24-kvunified-pool-overflow-0")["response"]["json"]
    assert "[DONE]" not in answer.text


def test_a_stream_without_a_finish_reason() -> None:
    with running(Fake(fault="no_finish")) as server:
        text = chat(server, **USAGE).text
        assert chat(server).json()["choices"][0]["finish_reason"] is None
    assert not any(choice["finish_reason"] for event in events(text) for choice in event["choices"])
    assert text.endswith("data: [DONE]\n\n")


def test_a_cut_stream() -> None:
    with running(Fake(fault="truncated_json")) as server:
        assert chat(server, stream=True).text.endswith('data: {"choices":[{"fin')


def test_an_empty_answer() -> None:
    with running(Fake(fault="empty")) as server:
        answer = chat(server).json()
    assert answer["choices"][0] == {
        "finish_reason": "stop",
        "index": 0,
        "message": {"role": "assistant", "content": ""},
    }
    assert answer["usage"]["completion_tokens"] == 1


def test_a_prompt_cut_in_silence() -> None:
    with running(Fake(fault="cut_silently", keep=100)) as server:
        body: Json = {"messages": [{"role": "user", "content": "word " * 9000}]}
        answer = ask(server, CHAT, body)
        assert ask(server, COUNT, body).json()["input_tokens"] > 9000
    assert (answer.status_code, answer.json()["usage"]["prompt_tokens"]) == (200, 100)
    assert server.prefilled == [100]


def test_a_window_that_is_a_lie() -> None:
    with running(Fake(fault="lying", n_ctx=512, prompt_tokens=lambda _: 600)) as server:
        assert ask(server, "/props").json()["default_generation_settings"]["n_ctx"] == 1024
        assert ask(server, "/v1/models").json()["data"][0]["meta"]["n_ctx"] == 1024
        assert chat(server).json()["error"]["n_ctx"] == 512


def test_smaller_faults() -> None:
    with running(Fake(fault="no_input_tokens")) as server:
        for path in (COUNT, "/apply-template", "/tokenize"):
            assert ask(server, path, {"messages": TERSE}).json() == load("40-404")["response"]["json"]
        server.fault = "wrong_content_type"
        assert ask(server, "/props").headers["content-type"] == "text/plain"
        assert ask(server, "/props").json()["total_slots"] == 1
        server.fault = "unauthorized"
        assert [ask(server, path).status_code for path in ("/health", "/props")] == [200, 401]
    with pytest.raises(ValueError, match="no such fault"):
        Fake(fault="typo")


def test_a_connection_that_is_dropped_after_a_stream() -> None:
    with running(Fake(fault="drop_after_stream")) as server, httpx.Client(base_url=server.url) as client:
        client.post(CHAT, json={"messages": TERSE, "stream": True})
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/health")
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("fault", [None, *(fault for fault in FAULTS if fault != "slow_headers")])
def test_nothing_is_left_behind(fault: str | None) -> None:
    before = threading.active_count()
    with running(Fake(fault=fault)) as server, httpx.Client(base_url=server.url, timeout=0.2) as client:
        for body in ({}, USAGE):
            with suppress(httpx.HTTPError), client.stream("POST", CHAT, json={"messages": TERSE, **body}) as answer:
                next(answer.iter_raw(), b"")
    gc.collect()  # a socket that is still open would warn, and a warning fails the test
    assert threading.active_count() == before


def test_an_error_inside_the_fake_fails_the_test() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        running(Fake(prompt_tokens=lambda _: 1 // 0)) as server,
        suppress(httpx.RemoteProtocolError),
    ):
        chat(server)


def test_it_runs_by_hand() -> None:
    command = [sys.executable, "-m", "tests.fakes.llama_server", "--n-ctx", "512", "--api-key", "k", "--fault", "lying"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().strip()
            answer = httpx.get(f"{url}/props", headers={"authorization": "Bearer k"}, timeout=5)
            assert answer.json()["default_generation_settings"]["n_ctx"] == 1024
        finally:
            process.kill()


# The replaying transport.


def test_recordings_are_replayed_in_turn() -> None:
    names = (
        "01b-props-loading",
        "llama-server-b11434/03-props-smol-c4096-np1",
        "11-chat-stream-usage",
        "61d-sleep-metrics",
    )
    with httpx.Client(transport=transport(*names), base_url="http://recorded") as client:
        assert [client.get("/props").status_code for _ in range(3)] == [503, 200, 200]
        answer = client.get("/props")
        assert answer.json() == load("03-props-smol-c4096-np1")["response"]["json"]
        assert answer.headers["server"] == "llama.cpp"
        assert events(client.post(CHAT, json={}).text)[-1]["usage"]["prompt_tokens"] == 22
        assert client.get("/metrics").text.startswith("# HELP")
        assert client.get("/props?model=x").json() == load("40-404")["response"]["json"]


def test_a_recording_may_hold_many_answers() -> None:
    with httpx.Client(transport=transport("90-xllamacpp-inprocess"), base_url="http://recorded") as client:
        assert client.get("/props").json()["build_info"] == "b0-unknown"
        assert [client.post(CHAT).status_code for _ in range(2)] == [200, 200]
    with pytest.raises(LookupError):
        load("no-such-recording")


# The same questions to a real server.


@contextmanager
def embedded(gguf: str) -> Iterator[str]:
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.hostnames, params.port = gguf, ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.fit_params, params.ui, params.verbosity = 512, 1, False, False, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    server = xllamacpp.Server(params)
    try:
        yield server.listening_address
    finally:
        del server


@pytest.mark.live
def test_it_says_what_a_real_server_says() -> None:
    gguf = os.environ.get("LOCALCTX_TEST_GGUF")
    if not gguf:
        pytest.skip("LOCALCTX_TEST_GGUF names no model file")
    short: Json = {"messages": TERSE, "max_tokens": 2, "temperature": 0}
    long: Json = {"messages": [{"role": "user", "content": "word " * 800}]}
    questions: list[tuple[str, Json | None]] = [
        *((path, None) for path in ("/health", "/props", "/v1/models", "/slots", "/metrics", "/nope")),
        *((path, {"messages": TERSE}) for path in (COUNT, "/apply-template")),
        *(
            (CHAT, body)
            for body in (short, short | {"stream": True}, short | USAGE, long, long | USAGE, {"model": "x"})
        ),
        *(("/tokenize", {"content": "Hello world", "with_pieces": pieces}) for pieces in (False, True)),
    ]

    def answers(url: str) -> list[tuple[str, int, set[str], list[set[str]]]]:
        found = []
        for path, body in questions:
            answer = httpx.request("POST" if body else "GET", url + path, json=body, timeout=120)
            said = events(answer.text) if "event-stream" in answer.headers["content-type"] else [answer.json()]
            found.append((path, answer.status_code, set(answer.headers), [shape(part) for part in said]))
        return found

    with embedded(gguf) as url, running(Fake(n_ctx=512)) as server:
        for real, fake in zip(answers(url), answers(server.url), strict=True):
            assert fake == real
