"""Texts of many kinds to measure token counters with, generated from an integer, and conversations made of them.

`sample` gives a text of one of `KINDS`, `GROUPS` says which kinds the promises of the estimate speak of, and
`conversations` gives requests for checks of exactness. Prose, templates and generators are written for this corpus, so
that it may be published with the results. The rates (tokens a character) of what is generated were compared with those
of real files of the same kinds, and agree within about a tenth for code, JSON and logs.
"""

from __future__ import annotations

from localctx.app.bench.corpus.chats import Conversation, Message, conversations
from localctx.app.bench.corpus.kinds import GROUPS, KINDS, sample

__all__ = ["GROUPS", "KINDS", "Conversation", "Message", "conversations", "sample"]
