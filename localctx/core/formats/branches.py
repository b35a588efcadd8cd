"""A log whose entries name their parent is a tree: the branch that ends at one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from localctx.core.formats.conversation import Entry

__all__ = ["branch", "keyed", "parents", "with_nameless"]


def keyed(entries: Sequence[Entry], name: str) -> dict[str, Entry]:
    """The entries by their id under `name`, or by their place where they have none.

    Of entries with the same id the last one counts, at the place of the first.
    """
    known: dict[str, Entry] = {}
    for place, entry in enumerate(entries):
        key = entry.get(name)
        known[key if isinstance(key, str) else f"{_NAMELESS}{place}"] = entry
    return known


_NAMELESS = "#"


def parents(known: Mapping[str, Entry], name: str) -> dict[str, str | None]:
    """The parent of each entry; None where a tree begins.

    One that names none, or one that is not here, follows the entry before it. Where no entry at all names one that is
    here, the log is a plain list.
    """
    plain = not any(entry.get(name) in known for entry in known.values() if isinstance(entry.get(name), str))
    found, before = dict[str, str | None](), None
    for key, entry in known.items():
        parent = entry.get(name, before)
        root = parent is None and not plain
        found[key] = None if root else parent if isinstance(parent, str) and parent in known else before
        before = key
    return found


def branch(end: str | None, parent: Mapping[str, str | None], seen: set[str]) -> list[str]:
    """The keys from a root to `end`, of those that are not `seen` yet; they are afterwards."""
    keys = list[str]()
    while end is not None and end not in seen:
        keys.append(end)
        seen.add(end)
        end = parent[end]
    return keys[::-1]


def with_nameless(chain: Sequence[str], known: Mapping[str, Entry], seen: set[str]) -> list[str]:
    """The chain with the entries that have no id, each behind the one before it in the log: no other can name them."""
    following, last = dict[str, list[str]](), ""
    for key in known:
        if key.startswith(_NAMELESS) and last in seen:
            following.setdefault(last, []).extend([] if key in seen else [key])
        else:
            last = key
    keys = [each for key in chain for each in (key, *following.get(key, ()))]
    seen.update(keys)
    return keys
