from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.overflow import Kind, classify
from tests.cases import case, joined
from tests.core.strategies import json_values


@pytest.mark.parametrize(
    ("row", "check"), joined(case(8)["given"]["rows"], case(8)["checks"]["rows"]), ids=lambda row: row.get("name", "")
)
def test_case_bodies_of_overflow(row: dict[str, Any], check: dict[str, Any]) -> None:
    verdict = classify(row["status"], row["body"])
    assert (verdict.kind, verdict.limit, verdict.prompt) == (check["kind"], check["limit"], check["prompt"])
    assert verdict.prompt_is_lower_bound == (check["prompt_is"] == "lower_bound")
    assert verdict.exclusive == (check.get("limit_is") == "exclusive")
    if verdict.kind is Kind.OUTPUT_CAP:
        assert verdict.output_that_fits == check.get("max_output_that_fits", check.get("max_output_at_most"))


@pytest.mark.parametrize(
    ("row", "check"), joined(case(9)["given"]["rows"], case(9)["checks"]["rows"]), ids=lambda row: row.get("name", "")
)
def test_case_errors_that_are_not_overflow(row: dict[str, Any], check: dict[str, Any]) -> None:
    verdict = classify(row["status"], row["body"])
    assert (verdict.kind, verdict.limit, verdict.output_that_fits) == (check["class"], None, None)


TOO_LONG = "request (33056 tokens) exceeds the available context size (32768 tokens), try increasing it"
WRAPPED = json.dumps({"error": {"message": TOO_LONG}})


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        pytest.param(200, {"choices": []}, Kind.OK, id="an answer"),
        pytest.param(200, {"error": None}, Kind.OK, id="no error"),
        pytest.param(200, {"error": {"message": "boom"}}, Kind.SERVER_ERROR, id="an error inside a stream"),
        pytest.param(500, "<html>oops</html>", Kind.SERVER_ERROR, id="no JSON"),
        pytest.param(500, {}, Kind.SERVER_ERROR, id="an empty body"),
        pytest.param(422, {"detail": [{"msg": "field required"}]}, Kind.BAD_REQUEST, id="a validator's report"),
        pytest.param(401, {"error": "no key"}, Kind.UNAUTHORIZED, id="no key"),
        pytest.param(403, {"error": "not yours"}, Kind.UNAUTHORIZED, id="another's key"),
        pytest.param(404, {"error": "nothing here"}, Kind.MODEL_MISSING, id="no such path"),
        pytest.param(400, {"error": "model 'qwen3:8b' not found"}, Kind.MODEL_MISSING, id="no such model"),
        pytest.param(400, {}, Kind.BAD_REQUEST, id="a refusal without a word"),
        *(
            pytest.param(status, {"error": "later"}, Kind.RETRY, id=f"status {status}")
            for status in (429, 502, 503, 504)
        ),
        pytest.param(
            500, {"error": {"message": "full", "n_ctx": 8_192}}, Kind.SERVER_ERROR, id="one number proves nothing"
        ),
        pytest.param(500, {"error": "CUDA error: out of memory"}, Kind.SERVER_MEMORY, id="memory"),
        pytest.param(400, {"type": "error", "message": TOO_LONG}, Kind.PROMPT_TOO_LONG, id="a body that is an error"),
        pytest.param(400, {"error": f"upstream said {WRAPPED}"}, Kind.PROMPT_TOO_LONG, id="wrapped as text"),
        pytest.param(400, {"error": f"in {{template}}: {WRAPPED}"}, Kind.PROMPT_TOO_LONG, id="wrapped beyond reading"),
        pytest.param(400, {"error": 'got {"role": "x"} for a role'}, Kind.BAD_REQUEST, id="JSON that is no error"),
        pytest.param(400, {"error": '{"a":' * 100_000}, Kind.BAD_REQUEST, id="bottomless"),
    ],
)
def test_kinds(status: int, body: object, kind: Kind) -> None:
    assert classify(status, body).kind is kind


def test_a_cap_on_the_output_without_the_size_of_the_prompt() -> None:
    verdict = classify(400, {"error": {"message": "max_tokens=9000 cannot be greater than max_model_len=8192"}})
    assert (verdict.kind, verdict.limit, verdict.output) == (Kind.OUTPUT_CAP, 8_192, 9_000)
    assert verdict.output_that_fits is None


@pytest.mark.parametrize(("prompt", "kind"), [(4_095, Kind.OUTPUT_CAP), (4_096, Kind.PROMPT_TOO_LONG)])
def test_a_prompt_that_leaves_no_token_for_the_reply_is_too_long(prompt: int, kind: Kind) -> None:
    asked = f"you requested {prompt + 9} tokens ({prompt} in the messages, 9 in the completion)"
    body = {"error": f"This model's maximum context length is 4096 tokens. However, {asked}."}
    assert classify(400, body).kind is kind


@pytest.mark.parametrize(("wraps", "limit"), [(0, 8_192), (1, 8_192), (4, 8_192), (9, None)])
def test_fields_are_found_under_a_few_wraps(wraps: int, limit: int | None) -> None:
    body: object = {"error": {"message": "full", "n_ctx": 8_192, "n_prompt_tokens": 9_000}}
    for _ in range(wraps):
        body = {"error": json.dumps(body)}
    assert classify(500, body).limit == limit


@given(
    st.integers(100, 599), json_values | st.dictionaries(st.sampled_from(["error", "object", "message"]), json_values)
)
def test_any_body_has_a_verdict(status: int, body: object) -> None:
    verdict = classify(status, body)
    assert verdict.limit is None
    assert (verdict.kind is Kind.OK) <= (status < 400)
