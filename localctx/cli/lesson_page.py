"""The page that plays the lesson: one file that asks nothing of the network, made from a template of this package."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from localctx.core.lesson_script import TITLES, title

__all__ = ["rendered"]


def rendered(document: Mapping[str, Any], stories: Sequence[Mapping[str, Any]]) -> str:
    """The page for a document of `localctx simulate --json` and the stories that its knob can choose.

    The page computes no tokens: it shows these stories. Its policy lets the one script and the one style of the template
    run, by their hashes, and nothing be loaded.
    """
    template = resources.files("localctx.cli").joinpath("simulate.html").read_text(encoding="utf-8")
    page = template.replace("@@POLICY@@", _policy(template))
    page = page.replace("@@TRANSCRIPT@@", "".join(map(_line, document["steps"])))
    return page.replace("@@DATA@@", _embedded(_data(document, stories)))


def _policy(template: str) -> str:
    return f"default-src 'none'; script-src {_hash(template, 'script')}; style-src {_hash(template, 'style')}; base-uri 'none'; form-action 'none'"


def _hash(template: str, tag: str) -> str:
    text = template.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(document: Mapping[str, Any], stories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the script reads: `chosen` is the place among the stories of the one that the document tells."""
    setting = [(story["threshold"], story["memory"]) for story in stories]
    names = {*TITLES, *(name for story in stories for each in story["steps"] for name in each["desk"])}
    shared = {name: document[name] for name in ("schema", "recorded", "comparison")}
    chosen = setting.index((document["threshold"], document["memory"]))
    return {**shared, "chosen": chosen, "titles": {name: title(name) for name in sorted(names)}, "stories": stories}


def _embedded(value: object) -> str:
    """A value as JSON in which nothing can end a script or begin a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _line(step: Mapping[str, Any]) -> str:
    """A step of the transcript, as the script makes it too."""
    changed = f"{step['tokens']:+,}".replace("-", "\N{MINUS SIGN}") + ", " if step["tokens"] else ""
    figures = f"{changed}{step['total']:,} tokens, {step['pressure'] * 100:.1f}%"
    remarks = "".join(f'<span class="remark">{html.escape(each)}</span>' for each in step["remarks"])
    return f'<li>{html.escape(step["text"])}<span class="figures">{figures}</span>{remarks}</li>'
