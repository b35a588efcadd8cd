from __future__ import annotations

from dataclasses import is_dataclass
from typing import get_args

from localctx.core import events


def test_whoever_handles_every_event_handles_all_that_there_are() -> None:
    declared = {value for value in vars(events).values() if is_dataclass(value)}
    assert set(get_args(events.Event)) == declared
    assert {event.__name__ for event in get_args(events.Event)} == set(events.__all__) - {"Event"}
