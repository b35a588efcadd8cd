from __future__ import annotations

from tests.cases import expanded


def test_long_texts_are_written_out_wherever_they_stand() -> None:
    given = {
        "rows": [{"$concat": ["<", {"$repeat": {"text": "ab", "times": 3}}, ">"]}, 7, None, {"deep": {"$concat": []}}]
    }
    assert expanded(given) == {"rows": ["<ababab>", 7, None, {"deep": ""}]}
