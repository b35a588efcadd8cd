from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.window import Budget, Confidence, Reading, Source, assume, reconcile, reread
from tests.cases import case, joined

SERVED, MEASURED, PINNED, CONFIGURED, TRAINED, ADVERTISED = (
    Source.SERVED,
    Source.MEASURED,
    Source.PINNED,
    Source.CONFIGURED,
    Source.TRAINED,
    Source.ADVERTISED,
)

windows = st.integers(2_048, 1_048_576)
readings = st.lists(st.builds(Reading, st.sampled_from(Source), st.integers(-1, 300_000), st.just("here")), max_size=6)


def said(**tokens: int) -> list[Reading]:
    """Readings by the name of their source."""
    return [Reading(Source(source), number, f"{source} here") for source, number in tokens.items()]


# --- reconciling ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "tokens", "source"),
    [
        pytest.param({"served": 4_096, "trained": 131_072, "advertised": 131_072}, 4_096, SERVED, id="served"),
        pytest.param({"served": 262_144, "trained": 40_960, "advertised": 120_000}, 262_144, SERVED, id="never capped"),
        pytest.param({"served": 32_768, "measured": 16_384}, 16_384, MEASURED, id="measured lower than stated"),
        pytest.param({"served": 32_768, "measured": 65_536}, 32_768, SERVED, id="measured higher than stated"),
        pytest.param({"served": 32_768, "pinned": 8_192}, 8_192, PINNED, id="a pin lowers"),
        pytest.param({"served": 32_768, "pinned": 131_072}, 32_768, SERVED, id="a pin never raises"),
        pytest.param({"served": 32_768, "configured": 4_096}, 32_768, SERVED, id="a setting is not what is served"),
    ],
)
def test_what_is_served_decides(statements: dict[str, int], tokens: int, source: Source) -> None:
    window = reconcile(said(**statements))
    assert (window.tokens, window.confidence) == (tokens, Confidence.SERVED)
    assert window.decided_by is not None
    assert window.decided_by.source is source


@pytest.mark.parametrize(
    ("statements", "tokens", "source"),
    [
        pytest.param({"pinned": 131_072, "advertised": 262_144}, 131_072, PINNED, id="pin"),
        pytest.param({"pinned": 131_072, "advertised": 40_960}, 40_960, ADVERTISED, id="pin capped by the catalog"),
        pytest.param({"pinned": 65_536, "trained": 40_960}, 40_960, TRAINED, id="pin capped by the weights"),
        pytest.param({"pinned": 200_000}, 200_000, PINNED, id="pin that nothing caps"),
        pytest.param({"pinned": 8_192, "configured": 32_768}, 8_192, PINNED, id="pin before setting"),
        pytest.param({"configured": 32_768, "trained": 262_144}, 32_768, CONFIGURED, id="setting"),
        pytest.param({"configured": 65_536, "trained": 40_960}, 40_960, TRAINED, id="setting capped by the weights"),
        pytest.param({"configured": 65_536, "advertised": 40_960}, 65_536, CONFIGURED, id="setting not by the catalog"),
    ],
)
def test_what_the_server_has_not_confirmed_is_provisional(
    statements: dict[str, int], tokens: int, source: Source
) -> None:
    window = reconcile(said(**statements))
    assert (window.tokens, window.confidence) == (tokens, Confidence.PROVISIONAL)
    assert window.decided_by is not None
    assert window.decided_by.source is source


@pytest.mark.parametrize(
    ("statements", "tokens", "confidence"),
    [
        pytest.param({"pinned": 65_536, "served": 131_072}, 65_536, Confidence.PROVISIONAL, id="until it has reloaded"),
        pytest.param({"pinned": 65_536, "served": 4_096}, 65_536, Confidence.PROVISIONAL, id="also upwards"),
        pytest.param({"pinned": 65_536, "served": 65_536}, 65_536, Confidence.SERVED, id="confirmed"),
        pytest.param({"served": 4_096}, 4_096, Confidence.SERVED, id="no pin"),
        pytest.param(
            {"pinned": 65_536, "served": 4_096, "trained": 40_960}, 40_960, Confidence.PROVISIONAL, id="capped"
        ),
    ],
)
def test_a_pin_that_reloads_replaces_what_is_served(
    statements: dict[str, int], tokens: int, confidence: Confidence
) -> None:
    window = reconcile(said(**statements), pin_reloads=True)
    assert (window.tokens, window.confidence) == (tokens, confidence)


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param({}, id="silence"),
        pytest.param({"served": 0, "measured": -1, "pinned": 0, "configured": 0}, id="zero is not a number of tokens"),
        pytest.param({"trained": 262_144, "advertised": 262_144}, id="weights and catalogs serve nobody"),
    ],
)
def test_unknown_stays_unknown(statements: dict[str, int]) -> None:
    window = reconcile(said(**statements), ceiling=60_000)
    assert (window.tokens, window.max_prompt, window.confidence) == (None, None, Confidence.UNKNOWN)
    assert window.decided_by is None


@pytest.mark.parametrize(
    ("ceiling", "tokens"),
    [(60_000, 32_768), (131_072, 32_768), (8_192, 8_192), (0, 32_768), (-1, 32_768), (None, 32_768)],
)
def test_a_ceiling_only_lowers(ceiling: int | None, tokens: int) -> None:
    window = reconcile(said(served=32_768), ceiling=ceiling)
    assert (window.tokens, window.max_prompt, window.confidence) == (tokens, tokens - 1, Confidence.SERVED)


@given(stated=readings, ceiling=st.integers(1, 300_000), pin_reloads=st.booleans(), margin=st.integers(1, 8))
def test_a_window_is_one_of_its_readings_under_the_ceiling(
    *, stated: list[Reading], ceiling: int, pin_reloads: bool, margin: int
) -> None:
    free = reconcile(stated, pin_reloads=pin_reloads)
    window = reconcile(reversed(stated), ceiling=ceiling, pin_reloads=pin_reloads, reply_margin=margin)
    assert all(reading.tokens > 0 for reading in window.readings)
    if free.tokens is None:
        assert window.tokens is None
    else:
        assert window.tokens == min(free.tokens, ceiling)
        assert free.tokens in {reading.tokens for reading in free.readings}
        assert window.max_prompt == max(window.tokens - margin, 0)


@pytest.mark.parametrize(
    ("statements", "shown", "tokens"),
    [
        pytest.param({"served": 32_768}, 8_192, 8_192, id="less than it said"),
        pytest.param({"served": 32_768}, 65_536, 32_768, id="never more"),
        pytest.param({}, 8_192, 8_192, id="anything where it said nothing"),
    ],
)
def test_what_a_server_shows_lowers_what_it_said(statements: dict[str, int], shown: int, tokens: int) -> None:
    window = reconcile(said(**statements), ceiling=60_000, reply_margin=6)
    after = reread(window, Reading(MEASURED, shown, "refused"))
    margin = 6 if window.tokens else 1
    assert (after.tokens, after.max_prompt, after.ceiling) == (tokens, tokens - margin, 60_000)
    assert after.confidence is Confidence.SERVED


@pytest.mark.parametrize(("ceiling", "tokens"), [(None, 4_096), (2_048, 2_048), (60_000, 4_096)])
def test_an_assumed_window_is_never_shown_as_known(ceiling: int | None, tokens: int) -> None:
    window = assume(reconcile(said(trained=131_072), ceiling=ceiling))
    assert (window.tokens, window.max_prompt, window.confidence) == (tokens, tokens - 1, Confidence.UNKNOWN)
    assert window.decided_by is not None
    assert window.decided_by.source is Source.ASSUMED
    assert [reading.source for reading in window.readings] == [TRAINED, Source.ASSUMED]


def test_a_known_window_needs_no_assumption() -> None:
    window = reconcile(said(served=2_048))
    assert assume(window) is window


# --- dividing -------------------------------------------------------------------------------------------------------


@given(windows, st.none() | st.integers(-1, 2_000_000), st.none() | st.integers(1, 2_000_000))
def test_every_budget_leaves_room_for_prompt_and_reply(window: int, output: int | None, longest: int | None) -> None:
    budget = Budget.of(window, output_limit=output, max_prompt=longest)
    assert 0 < budget.reserve <= window * 0.25
    assert 0 < budget.prompt <= budget.max_prompt < window
    assert budget.prompt + budget.reserve <= window


@pytest.mark.parametrize(
    ("output", "reserve"), [(None, 1_500), (0, 1_500), (500, 500), (2_000, 2_000), (2_501, 2_500), (10_000, 2_500)]
)
def test_the_reserve_is_a_share_of_the_window(output: int | None, reserve: int) -> None:
    assert Budget.of(10_000, output_limit=output).reserve == reserve


@pytest.mark.parametrize(
    ("window", "clear", "warn", "compact"),
    [
        (4_096, 2_048, 2_867, 3_276),
        (8_192, 4_096, 5_734, 6_553),
        (16_384, 8_192, 11_468, 13_107),
        (32_768, 16_384, 22_937, 26_214),
        (131_072, 65_536, 91_750, 104_857),
        (262_144, 131_072, 183_500, 209_715),
    ],
)
def test_rungs_are_due_at_their_share_and_never_past_the_budget(
    window: int, clear: int, warn: int, compact: int
) -> None:
    budget = Budget.of(window)
    assert [budget.due(share) for share in (0.50, 0.70, 0.80)] == [clear, warn, compact]
    assert budget.due(0.95) == budget.prompt == window - int(window * 0.15)


@pytest.mark.parametrize(("stated", "longest"), [(None, 8_191), (8_192, 8_191), (8_186, 8_186)])
def test_no_prompt_fills_the_window(stated: int | None, longest: int) -> None:
    budget = Budget.of(8_192, max_prompt=stated)
    assert budget.max_prompt == longest
    assert budget.reply(longest, None) == 8_192 - longest
    assert budget.reply(longest + 1, None) < 1


def test_a_rung_is_due_before_a_server_refuses_the_prompt() -> None:
    assert Budget.of(8_192, max_prompt=5_000).due(0.80) == 5_000


@given(windows, st.none() | st.integers(1, 2_000_000), st.integers(0, 1_100_000), st.none() | st.integers(1, 2_000_000))
def test_a_reply_never_passes_the_window(window: int, longest: int | None, upper: int, wanted: int | None) -> None:
    budget = Budget.of(window, max_prompt=longest)
    reply = budget.reply(upper, wanted)
    assert reply <= (wanted or reply)
    assert (reply >= 1) == (upper <= budget.max_prompt)
    if reply >= 1:
        assert upper + reply <= window


# --- cases from the field -------------------------------------------------------------------------------------------


def test_case_served_window_beats_the_card() -> None:
    checks = case(1)["checks"]
    trained = case(1)["given"]["http"][2]["json"]["model_info"]["gemma3.context_length"]
    window = reconcile(said(served=4_096, trained=trained, advertised=131_072))
    assert (window.tokens, trained) == (checks["effective_window"], checks["upper_bound"])
    budget = Budget.of(checks["effective_window"])
    assert (budget.due(0.70), budget.due(0.80)) == (checks["warn_at"], checks["summarize_at"])
    assert budget.due(0.95) <= checks["trim_at"]


def test_case_a_pin_above_the_weights_is_lowered() -> None:
    given_, checks = case(2)["given"], case(2)["checks"]
    pin = Reading(PINNED, given_["config"]["num_ctx"], "num_ctx")
    trained = Reading(TRAINED, 40_960, "/api/show")
    cold = reconcile([pin, trained], ceiling=given_["config"]["maxContextTokens"], pin_reloads=True)
    assert (cold.tokens, cold.confidence) == (checks["effective_window"], Confidence.PROVISIONAL)
    budget = Budget.of(checks["effective_window"])
    assert (budget.due(0.70), budget.due(0.80)) == (checks["warn_at"], checks["summarize_at"])
    assert budget.due(0.95) <= checks["trim_at"]


def test_case_a_cold_model_is_provisional_until_it_serves() -> None:
    checks = case(3)["checks"]
    cold = said(configured=32_768, trained=262_144)
    for name, stated in {
        "cold": cold,
        "warm": [*cold, Reading(SERVED, 32_768, "/api/ps")],
        "after_stepdown": [*cold, Reading(SERVED, 4_096, "/api/ps")],
    }.items():
        window = reconcile(stated, pin_reloads=True)
        assert window.tokens == checks[name]["effective_window"]
        assert window.confidence == checks[name].get("confidence", Confidence.SERVED)
    assert Budget.of(32_768, output_limit=8_192).prompt == checks["max_prompt_after_num_predict_reserve"]


def test_case_a_pool_below_the_stated_context() -> None:
    checks = case(7)["checks"]
    window = reconcile(said(served=59_867, trained=163_840), reply_margin=6)
    assert (window.tokens, window.max_prompt) == (checks["effective_window"], checks["max_input"])


def test_case_thresholds_follow_the_window_found_at_resume() -> None:
    clear, compact, trim = case(23)["checks"]["thresholds_at_8192"]
    budget = Budget.of(8_192)
    assert (budget.due(0.70), budget.due(0.80)) == (clear, compact)
    assert budget.due(0.95) <= trim


@pytest.mark.parametrize(
    ("row", "check"), joined(case(13)["given"]["rows"], case(13)["checks"]["rows"]), ids=lambda row: row.get("name", "")
)
def test_case_the_reply_is_clamped_anew_for_each_request(row: dict[str, int], check: dict[str, int]) -> None:
    reply = Budget.of(row["max_model_len"]).reply(row["prompt_tokens"], row["wanted_max_tokens"])
    assert reply <= check.get("max_tokens_at_most", reply)
    assert reply == check.get("max_tokens_equals", reply)
    assert row["prompt_tokens"] + reply <= row["max_model_len"]


def test_a_pin_that_reloads_stays_one_and_yields_to_what_a_server_has_shown() -> None:
    stated = [Reading(Source.SERVED, 4_096, "ps"), Reading(Source.PINNED, 65_536, "--num-ctx")]
    window = reconcile(stated, pin_reloads=True)
    assert window.tokens == 65_536
    assert reread(window, Reading(Source.ADVERTISED, 131_072, "catalog")).tokens == 65_536
    assert reread(window, Reading(Source.MEASURED, 60_000, "a refusal")).tokens == 60_000
