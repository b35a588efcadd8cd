"""The lesson for programs: the document of `localctx simulate --json`, and the page that plays it in a browser.

The page is one file that asks nothing of the network, made from a template of this package.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import resources
from typing import Any

from localctx.core.lesson import Plan
from localctx.core.lesson_script import RUNS, TITLES, title
from localctx.core.lesson_story import Step, Story, compared, tell

__all__ = ["document", "page"]


def document(story: Story) -> dict[str, Any]:
    """The story, what the lesson recorded, and its policies in the same window.

    Keys: `schema`, `window`, `threshold` (a share, or null), `gate` (in tokens, or null), `memory`, `sizes`; the fields of a
    `Story` but for its plan; `recorded`, how many runs `of` how many did what; `comparison`, a row a policy.
    """
    return {**_told(story), **_shared(story)}


def _told(story: Story) -> dict[str, Any]:
    plan = story.plan
    sizes = {name: getattr(plan, name) for name in ("system", "remembered", "summary")}
    told = {name: value for name, value in asdict(story).items() if name != "plan"}
    setting = {"window": plan.limit, "threshold": plan.gate, "gate": plan.gate_tokens, "memory": plan.memory}
    return {"schema": 1, **setting, "sizes": sizes, **told}


def _shared(story: Story) -> dict[str, Any]:
    """What is the same for each setting of a page."""
    return {
        "recorded": [{"text": text, "runs": runs, "of": of} for text, runs, of in RUNS],
        "comparison": [_compared(name, each) for name, each in compared(story).items()],
    }


def _compared(name: str, story: Story) -> dict[str, Any]:
    told = {key: getattr(story, key) for key in ("peak", "trips", "summarized", "left", "rejected")}
    setting = {"threshold": story.plan.gate, "memory": story.plan.memory}
    return {"name": name, **setting, **told, "probes": [probe.outcome for probe in story.probes]}


def page(story: Story) -> str:
    """The page that plays the story, and those of the other settings in its window.

    It computes no tokens: it shows what `tell` says. Its policy lets the one script and the one style of the template
    run, by their hashes, and nothing be loaded.
    """
    template = resources.files("localctx.cli").joinpath("lesson_page.html").read_text(encoding="utf-8")
    text = template.replace("@@POLICY@@", _policy(template))
    text = text.replace("@@TRANSCRIPT@@", "".join(map(_line, story.steps)))
    return text.replace("@@DATA@@", _embedded(_data(story)))


def _policy(template: str) -> str:
    return f"default-src 'none'; script-src {_hash(template, 'script')}; style-src {_hash(template, 'style')}; base-uri 'none'; form-action 'none'"


def _hash(template: str, tag: str) -> str:
    text = template.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(story: Story) -> dict[str, Any]:
    """What the script reads: `chosen` is the place of the story among those of all settings."""
    stories = list(_settings(story.plan))
    names = {*TITLES, *(name for each in stories for step in each.steps for name in step.desk)}
    return {
        **_shared(story),
        "chosen": stories.index(story),
        "titles": {name: title(name) for name in sorted(names)},
        "stories": [_told(each) for each in stories],
    }


_NOTCHES = (*(tenth / 10 for tenth in range(1, 10)), 0.92, 1.0)


def _settings(plan: Plan) -> Iterator[Story]:
    """What the page's knob and switch can choose in this window; the gate that was asked for is among them."""
    gates = sorted({*_NOTCHES, *([plan.gate] if plan.gate else [])})
    for gate in [*gates, None]:
        yield from (tell(replace(plan, gate=gate, memory=memory)) for memory in (True, False))


def _embedded(value: object) -> str:
    """A value as JSON in which nothing can end a script or begin a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _line(step: Step) -> str:
    """A step of the transcript, as the script makes it too."""
    changed = f"{step.tokens:+,}".replace("-", "\N{MINUS SIGN}") + ", " if step.tokens else ""
    figures = f"{changed}{step.total:,} tokens, {step.pressure * 100:.1f}%"
    remarks = "".join(f'<span class="remark">{html.escape(each)}</span>' for each in step.remarks)
    return f'<li>{html.escape(step.text)}<span class="figures">{figures}</span>{remarks}</li>'
