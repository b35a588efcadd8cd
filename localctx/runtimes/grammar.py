"""The form of a reply as a grammar, for the servers that can impose one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localctx.core.notes import Outline

__all__ = ["grammar"]


def grammar(outline: Outline) -> str:
    """The outline in llama.cpp's GBNF, which xgrammar and llguidance read as well, and with them vLLM and SGLang.

    It leaves the rendered prompt, and so the prefix cache, as it is.
    """
    parts = " ".join(
        f'"## {heading}\\n" {"item" if not index else "items"}' for index, heading in enumerate(outline.headings)
    )
    return "\n".join(
        (
            f"root ::= {parts}",
            f'items ::= "- (none)\\n" | item{{1,{outline.items}}}',
            f'item ::= "- " [^ \\n\\t#*|`<>{{}}(-] [^\\n]{{8,{outline.characters}}} "\\n"',
        )
    )
