"""Text from templates: a small grammar whose rules are chosen at random and whose slots keep the indentation.

A file in `templates/` holds rules. `= name` begins a rule with one alternative a line, `== name` one whose alternatives
are blocks with a line `--` between them; `## ` begins a remark. A slot `«name»` is filled by the rule of that name or
by one of `FILLERS`, whose arguments follow behind colons (`«int:1:99»`). A slot that ends in a digit (`«noun1»`) keeps
its filling through its block and all that is nested in it, as the name of a variable does.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

__all__ = ["Grammar", "grammar"]

_TEMPLATES = Path(__file__).parent / "templates"
_RULE = re.compile(r"^(==?) ([A-Za-z-]+)\n(.*?)(?=^==? [A-Za-z-]+\n|\Z)", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"^## .*\n", re.MULTILINE)
_SLOT = re.compile(r"«([^»]+)»")


class _Slot(NamedTuple):
    """The text before a slot, what fills it, under what name that is kept ("" for no name), and its indentation."""

    before: str
    rule: str
    arguments: tuple[str, ...]
    kept: str
    indent: str


_Block: TypeAlias = tuple[tuple[_Slot, ...], str]
"""The slots of an alternative and the text behind the last one."""


class Grammar:
    """Rules by name.

    Raises:
        KeyError: a slot names a rule that there is not.
    """

    def __init__(self, rules: Mapping[str, tuple[str, ...]]) -> None:
        self._blocks = {name: tuple(_block(text) for text in texts) for name, texts in rules.items()}
        if unknown := {name for blocks in self._blocks.values() for name in _named(blocks)} - self._blocks.keys():
            raise KeyError(*sorted(unknown))

    def expand(self, rule: str, rng: Random, names: Mapping[str, str] | None = None) -> str:
        """One text of a rule; `names` are the fillings that its indexed slots already have."""
        slots, rest = rng.choice(self._blocks[rule])
        own = dict(names or {})
        return "".join(slot.before + self._fill(slot, rng, own) for slot in slots) + rest

    def _fill(self, slot: _Slot, rng: Random, names: dict[str, str]) -> str:
        if slot.kept in names:
            return names[slot.kept]
        if slot.rule in _REPEATS:
            low, high, rule = slot.arguments
            parts = [self.expand(rule, rng, names) for _ in range(rng.randint(int(low), int(high)))]
            text = _REPEATS[slot.rule].join(parts)
        elif slot.rule in FILLERS:
            text = FILLERS[slot.rule](self, rng, *slot.arguments)
        else:
            text = self.expand(slot.rule, rng, names)
        if slot.kept:
            names[slot.kept] = text
        return re.sub(r"\n(?=[^\n])", "\n" + slot.indent, text) if slot.indent else text


def _block(text: str) -> _Block:
    slots, at = list[_Slot](), 0
    for match in _SLOT.finditer(text):
        lead = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        rule, *arguments = match[1].split(":")
        kept = match[1] if rule[-1].isdigit() else ""
        indent = lead if lead.isspace() else ""
        slots.append(_Slot(text[at : match.start()], rule.rstrip("0123456789"), tuple(arguments), kept, indent))
        at = match.end()
    return tuple(slots), text[at:]


def _named(blocks: tuple[_Block, ...]) -> Iterator[str]:
    """The rules that the slots of a rule name."""
    for slots, _ in blocks:
        for slot in slots:
            if slot.rule not in _REPEATS and slot.rule not in FILLERS:
                yield slot.rule
            yield from (word for word in slot.arguments[-1:] if word[0].isalpha())


@lru_cache
def grammar(*files: str) -> Grammar:
    """The rules of the named template files together; a later file's rule replaces an earlier one's."""
    rules = dict[str, tuple[str, ...]]()
    for file in files:
        text = _REMARK.sub("", (_TEMPLATES / f"{file}.txt").read_text(encoding="utf-8"))
        for mark, name, body in _RULE.findall(text):
            parts = body.strip("\n").split("\n--\n" if mark == "==" else "\n")
            rules[name] = tuple(part for part in parts if part)
    return Grammar(rules)


def _int(_: Grammar, rng: Random, low: str, high: str) -> str:
    return str(rng.randint(int(low), int(high)))


def _padded(_: Grammar, rng: Random, width: str, low: str, high: str) -> str:
    return str(rng.randint(int(low), int(high))).zfill(int(width))


def _float(_: Grammar, rng: Random, low: str, high: str, decimals: str) -> str:
    return f"{rng.uniform(float(low), float(high)):.{decimals}f}"


def _characters(alphabet: str) -> Callable[..., str]:
    """A filler that gives so many characters of an alphabet: the number is its argument."""
    return lambda _, rng, length: "".join(rng.choices(alphabet, k=int(length)))


def _name(join: str, first: Callable[[str], str], other: Callable[[str], str]) -> Callable[..., str]:
    """A filler that gives an identifier of the words of a rule `name`, in one of the usual spellings."""

    def spell(rules: Grammar, rng: Random, rule: str = "name") -> str:
        words = rules.expand(rule, rng).split()
        return join.join([first(words[0]), *(other(word) for word in words[1:])])

    return spell


def _capital(rules: Grammar, rng: Random, rule: str) -> str:
    text = rules.expand(rule, rng)
    return text[:1].upper() + text[1:]


_REPEATS = {"many": "\n", "blocks": "\n\n", "list": ", ", "row": " ", "run": "", "comma": ","}
"""What joins the texts of a repeated rule: the arguments are the fewest, the most and the rule."""

FILLERS: Mapping[str, Callable[..., str]] = {
    "int": _int,
    "pad": _padded,
    "float": _float,
    "hex": _characters("0123456789abcdef"),
    "HEX": _characters("0123456789ABCDEF"),
    "digits": _characters("0123456789"),
    "dense": _characters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
    "letters": _characters("abcdefghijklmnopqrstuvwxyz"),
    "snake": _name("_", str.lower, str.lower),
    "kebab": _name("-", str.lower, str.lower),
    "camel": _name("", str.lower, str.capitalize),
    "pascal": _name("", str.capitalize, str.capitalize),
    "constant": _name("_", str.upper, str.upper),
    "flat": _name("", str.lower, str.lower),
    "capital": _capital,
}
"""What fills a slot that is not a rule: given the grammar, the source of chance and the slot's arguments."""
