"""The form of a reply: what each server is sent for it, and what happens where it is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from localctx.core.notes import Outline
from localctx.errors import LocalctxError, PromptRefused, RequestRefused, ServerFailed, ToolsRefused, Unauthorized
from localctx.ports import Delta, Finished, Piece, Request
from localctx.runtimes.detect import READERS
from localctx.runtimes.grammar import grammar
from localctx.runtimes.llama_server import LlamaServer
from localctx.runtimes.openai_chat import OpenAIServer
from tests.recordings import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.ports import Runtime

pytestmark = pytest.mark.anyio

FORM = Outline(("Goal", "Next Steps"), 3, 90)
TEXT = r'''root ::= "## Goal\n" item "## Next Steps\n" items
items ::= "- (none)\n" | item{1,3}
item ::= "- " [^ \n\t#*|`<>{}(-] [^\n]{8,90} "\n"'''
TOOLS: list[dict[str, object]] = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
PLAIN = Request([{"role": "user", "content": "Write notes."}], 50, TOOLS, 0.0, 0.4)
NOTES = replace(PLAIN, outline=FORM)

FIELDS: dict[str, dict[str, object]] = {
    "vllm": {"structured_outputs": {"grammar": TEXT}},
    "sglang": {"ebnf": TEXT},
    "lmstudio": {},
    "openai": {},
}


def streamed(*data: str) -> httpx.Response:
    text = "".join(f"data: {each}\n\n" for each in data)
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)


def failed(status: int, message: str) -> httpx.Response:
    return httpx.Response(status, json={"object": "error", "message": message, "type": "BadRequestError"})


def inside(message: str, code: int) -> str:
    return json.dumps({"error": {"message": message, "type": "an error", "code": code}})


def recorded(name: str) -> httpx.Response:
    said = load(name)["response"]
    if "json" in said:
        return httpx.Response(said["status"], json=said["json"])
    return httpx.Response(
        said["status"], headers={"content-type": "text/event-stream"}, text="\n".join(said["sse_raw_lines"])
    )


WORD = '{"choices":[{"delta":{"content":"a"}}]}'
GOOD = streamed(WORD, '{"choices":[{"delta":{},"finish_reason":"stop"}]}', "[DONE]")


class Answers(httpx.AsyncBaseTransport):
    """Gives its answers in order, the last one again and again, and keeps the bodies that it was asked with."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers = list(answers)
        self.bodies: list[dict[str, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(await request.aread()))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def server(self, kind: str = "vllm") -> OpenAIServer:
        return OpenAIServer("http://x", READERS[kind], kind=kind, transport=self)

    @property
    def formed(self) -> list[bool]:
        return [bool({"structured_outputs", "ebnf"} & set(body)) for body in self.bodies]


async def heard(server: Runtime, request: Request = NOTES, into: list[Piece] | None = None) -> list[Piece]:
    pieces = [] if into is None else into
    async for piece in server.chat(request):
        pieces.append(piece)
    return pieces


def test_the_first_heading_has_an_item_and_the_others_may_have_none() -> None:
    assert grammar(FORM) == TEXT


@pytest.mark.parametrize(("kind", "fields"), FIELDS.items())
async def test_a_form_is_said_as_the_server_takes_it_and_changes_nothing_else(
    kind: str, fields: dict[str, object]
) -> None:
    """The prompt is the same to the last token: nothing that a template reads depends on the form."""
    answers = Answers(GOOD)
    server = answers.server(kind)
    await heard(server, PLAIN)
    await heard(server, NOTES)
    plain, formed = answers.bodies
    assert formed == plain | fields
    assert formed["tools"] == TOOLS


async def test_a_llama_server_is_sent_the_same_grammar() -> None:
    answers = Answers(GOOD)
    await heard(LlamaServer("http://x", transport=answers))
    assert answers.bodies[0]["grammar"] == TEXT


NO_BACKEND = "Grammar-based generation is not supported by this server"
REFUSALS = {
    "recorded, in the stream": lambda: recorded("vllm-0.32.0/25-chat-grammar-refused-stream"),
    "behind an empty piece": lambda: streamed('{"choices":[{"delta":{"content":""}}]}', inside(NO_BACKEND, 400)),
    "at once": lambda: failed(400, NO_BACKEND),
    "by a validator": lambda: httpx.Response(422, json={"detail": [{"msg": "extra fields not permitted"}]}),
}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_server_that_refuses_the_form_is_asked_once_more_without_and_for_none_again(
    kind: str, refusal: Callable[[], httpx.Response]
) -> None:
    answers = Answers(refusal(), GOOD)
    server = answers.server(kind)
    first, end = await heard(server)
    assert first == Delta("a")
    assert isinstance(end, Finished)
    await heard(server)
    assert answers.formed == [True, False, False]
    assert answers.bodies[0] == answers.bodies[1] | FIELDS[kind]


async def test_a_refusal_that_had_another_cause_is_told_and_the_form_kept() -> None:
    refused = failed(400, "frequency_penalty is not supported")
    answers = Answers(refused, refused, GOOD)
    server = answers.server()
    with pytest.raises(RequestRefused, match="frequency_penalty"):
        await heard(server)
    await heard(server)
    assert answers.formed == [True, False, True]


TOO_LONG = "The input (3031 tokens) is longer than the model's context length (2048 tokens)."
TIMEOUT = httpx.ReadTimeout("silent")
ENDED = streamed("[DONE]")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(failed(400, TOO_LONG), PromptRefused, id="too long"),
        pytest.param(streamed(inside(TOO_LONG, 400)), PromptRefused, id="too long, in the stream"),
        pytest.param(recorded("vllm-0.32.0/10-chat-tools-not-enabled"), ToolsRefused, id="tools refused"),
        pytest.param(failed(500, "EngineCore encountered an issue"), ServerFailed, id="an error"),
        pytest.param(streamed(inside("EngineCore died", 500)), ServerFailed, id="an error in the stream"),
        pytest.param(failed(401, "no key"), Unauthorized, id="no key"),
        pytest.param(ENDED, ServerFailed, id="a death"),
        pytest.param(TIMEOUT, ServerFailed, id="silence"),
        pytest.param(httpx.RemoteProtocolError("Server disconnected"), ServerFailed, id="a closed connection"),
        pytest.param(streamed(WORD, inside("refused", 400)), RequestRefused, id="a refusal behind a piece"),
    ],
)
async def test_what_is_no_refusal_of_the_form_is_not_asked_again(
    answer: httpx.Response | Exception, error: type[LocalctxError]
) -> None:
    answers = Answers(answer, GOOD)
    server = answers.server()
    with pytest.raises(error):
        await heard(server)
    assert answers.formed == [True]
    await heard(server)
    assert answers.formed == [True, True]


async def test_a_refusal_of_a_request_without_a_form_is_not_asked_again() -> None:
    answers = Answers(failed(400, NO_BACKEND), GOOD)
    with pytest.raises(RequestRefused, match="HTTP 400: Grammar-based"):
        await heard(answers.server(), PLAIN)
    assert len(answers.bodies) == 1


@pytest.mark.parametrize("code", ["400", 400.0, 400.5, True, [], None, {"a": 1}])
async def test_a_code_of_any_kind_is_one_line(code: object) -> None:
    answers = Answers(streamed(json.dumps({"error": {"message": "no", "code": code}})))
    with pytest.raises(ServerFailed, match=r"HTTP [24]00: no"):
        await heard(answers.server("openai"))
