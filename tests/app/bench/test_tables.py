from __future__ import annotations

from xml.etree import ElementTree as ET

import anyio

from localctx.app.bench.pace import Pace
from localctx.app.bench.plot import svg
from localctx.app.bench.tables import Table, cells, markdown

SPEEDS = Table(
    "Speed & more",
    [{"counter": "<a>", "speed": 1234.5, "exact": True}, {"counter": "b", "speed": None, "exact": False}],
)


def test_cells_are_short_and_say_what_could_not_be_measured() -> None:
    table = Table("t", [{"name": "x", "few": 0.012345, "many": 123456.7, "whole": 12345, "none": None, "yes": True}])
    assert cells(table) == [
        ["name", "few", "many", "whole", "none", "yes"],
        ["x", "0.0123", "123,457", "12,345", "-", "yes"],
    ]


def test_a_table_without_rows_has_no_columns() -> None:
    assert cells(Table("t")) == [[]]


def test_markdown_has_a_line_a_row() -> None:
    assert [*markdown(SPEEDS)][1:] == [
        "| counter | speed | exact |",
        "| --- | --- | --- |",
        "| <a> | 1,234 | yes |",
        "| b | - | no |",
        "",
    ]


def test_a_plot_is_svg_with_a_bar_for_each_figure() -> None:
    root = ET.fromstring(svg("All", [SPEEDS, Table("Zeros", [{"of": 1, "n": 0}])]))  # noqa: S314  our own text
    kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert kinds.count("rect") == 1 + 1 + 1, "the ground, one speed, one nought"
    assert {"All", "Speed & more", "<a>", "1,234", "Zeros", "0"} <= set(texts)
    assert "exact" not in texts


def test_a_step_that_would_end_too_late_is_left_out_and_one_that_fits_is_not() -> None:
    told = list[tuple[float, float, str]]()
    pace = Pace(100, lambda *step: told.append(step))
    pace.expect(1_110)
    assert pace.begin(10, "small")
    pace.end(10, 1.0)
    assert not pace.begin(1_090, "large")
    assert pace.begin(10, "another")
    assert pace.left_out == ["large"]
    assert told == [(0, 1_110, "small"), (10, 1_110, ""), (10, 20, "another")]


def test_nothing_begins_when_the_time_is_up() -> None:
    pace = Pace(0)
    pace.expect(10)
    assert not pace.begin(0, "anything")
    assert pace.left == 0


def test_the_time_begins_with_the_work_and_not_with_loading_a_model() -> None:
    pace = Pace(5)
    assert pace.left == 5
    pace.expect(1)
    assert 0 < pace.left < 5


def test_what_is_not_done_in_time_is_cancelled_and_no_time_is_left() -> None:
    pace, done = Pace(0.05), list[str]()

    async def work() -> None:
        with pace.within():
            done.append("begun")
            await anyio.sleep(60)
            done.append("ended")

    anyio.run(work)
    assert done == ["begun"]
    assert pace.left == 0
