"""`localctx sessions`: what was said in saved sessions, and what can be done with them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from localctx.cli.options import AsJson
from localctx.cli.render import columns, note, out
from localctx.cli.wording import clipped
from localctx.errors import Misuse

if TYPE_CHECKING:
    from localctx.stores.sessions import Listed
    from localctx.wiring.record import Kept

__all__ = ["Name", "app", "counted", "spelled", "when"]

app = typer.Typer(name="sessions", help="Saved sessions: look, export, fork, undo, remove.", no_args_is_help=True)

Name = Annotated[
    str | None, typer.Argument(metavar="ID", help="A session, or a beginning of its name; else the newest.")
]


@app.command("list")
def list_sessions(as_json: AsJson = False) -> None:
    """List the sessions, the one that was written last first."""
    from localctx.wiring import record

    found = record.sessions().listed()
    if as_json:
        rows = [{name: None if value == "" else value for name, value in asdict(each).items()} for each in found]
        out(spelled({"schema": 1, "sessions": rows}))
    else:
        column = min(max((len(each.name) for each in found), default=0), _LONG_NAME)
        text = "\n".join(line for each in found for line in _listed(each, column))
        out(text or "No session yet; begin one with: localctx run")
    for trouble in filter(None, (each.trouble for each in found)):
        note(trouble)


_LONG_NAME, _FIRST_WORDS = 24, 50


def _listed(one: Listed, column: int) -> Iterator[str]:
    """A session in two lines: its name and first words, then its figures; in three where something is wrong with it."""
    width, name = columns(), one.name.ljust(column)
    yield f"{name}  {clipped(one.first_words or '(nothing was said)', width - len(name) - 2)}".rstrip()
    figures = [when(one.written), counted(one.messages, "message"), counted(one.compactions, "compaction")]
    size = f"{-(-one.size_bytes // 1000):,} kB"
    yield "  " + clipped(", ".join([*figures, size, one.model or "no model"]), width - 2)
    if one.trouble:
        yield "  ! damaged: what is behind the damage is not counted"


@app.command()
def show(
    session: Name = None,
    compactions: Annotated[bool, typer.Option("--compactions", help="Each compaction, with its summary.")] = False,
    message: Annotated[int | None, typer.Option("--message", help="The message on this journal line, whole.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the figures of a session, its compactions, or a message."""
    from localctx.wiring import record

    if compactions and message is not None:
        raise Misuse("--compactions and --message exclude each other; pass one")
    kept = record.read(session, texts=message is not None)
    if message is not None:
        fields, text = _message(kept, message)
    elif compactions:
        made = record.compactions(kept)
        none = f"No compaction has happened in session {kept.name}."
        text = "\n\n".join(f"{_rows(each)}\n\n{each['summary']}" for each in made) or none
        fields = {"compactions": made}
    else:
        fields = record.figures(kept)
        text = "\n".join([_rows({"session": kept.name, **fields}), *_details(fields)])
    out(spelled({"schema": 1, "session": kept.name, **fields}) if as_json else text)
    if kept.damage:
        raise kept.damage


def _details(fields: Mapping[str, Any]) -> Iterator[str]:
    from localctx.core.work import lines, read_state

    for each in fields["tools"]:
        sizes = f"{each['returned']:,} characters returned, {each['shown']:,} shown to the model"
        yield f"{'tool':<19}  {each['tool']}: {counted(each['results'], 'result')}, {sizes}"
    yield from (f"{'work':<19}  {line}" for line in lines(read_state(fields["work"])))


def _message(kept: Kept, number: int) -> tuple[dict[str, object], str]:
    """A message for programs, and for people; of a result all that the tool returned."""
    from localctx.core.record import body

    entry = next((each for each in kept.entries if each.seq == number and each.type == "message"), None)
    if entry is None:
        step = f"localctx sessions export {kept.name} --format markdown names the line of each"
        raise kept.damage or Misuse(f"line {number} of session {kept.name} holds no message; {step}")
    whole = kept.lines.whole(entry)
    match entry.body:
        case {"bodies": {"whole": _}} if whole is None:
            note("what the tool returned is no longer here whole; this is what the model read of it")
    about = {name: entry.body.get(name) for name in ("message", "tool", "size")}
    match entry.body:
        case {"message": {"role": "tool", "content": str(text)}}:
            text = whole or text
        case _:
            text = body(entry.body.get("message"))
    return {"line": number, "at": entry.at, **about, "whole": whole}, text


@app.command()
def export(
    session: Name = None,
    form: Annotated[
        Literal["openai", "markdown"], typer.Option("--format", help="JSON with the messages, or a text to read.")
    ] = "openai",
    file: Annotated[Path | None, typer.Option("--out", help="A new file; one that is there stays as it is.")] = None,
    ahead: Annotated[bool, typer.Option("--next", help="What the model would read next instead.")] = False,
) -> None:
    """Write down all that was said, whatever was compacted since."""
    from localctx.core.record import markdown
    from localctx.wiring import record

    kept = record.read(session, texts=True)
    said = record.next_messages(kept) if ahead else record.messages(kept)
    text = markdown(kept.name, said) if form == "markdown" else spelled({"messages": [each for _, each in said]}) + "\n"
    if file is None:
        out(text, end="")
    else:
        record.save(file, text)
        note(f"wrote {counted(len(said), 'message')} to {file}")
    if kept.damage:
        raise kept.damage


@app.command()
def fork(
    session: Annotated[str, typer.Argument(metavar="ID", help="A session, or a beginning of its name.")],
    new: Annotated[str | None, typer.Argument(metavar="NEW", help="The name of the new one.")] = None,
    through: Annotated[int | None, typer.Option("--through", help="The last journal line that it takes over.")] = None,
) -> None:
    """Begin a new session with the lines of another."""
    from localctx.wiring import record

    name = record.sessions().fork(session, new, through)
    out(name)
    note(f"go on with it: localctx run --resume {name}")


@app.command()
def undo(
    session: Name = None,
    redo: Annotated[bool, typer.Option("--redo", help="Bring back what the last undo took.")] = False,
) -> None:
    """Take back your last message and all that came of it."""
    from localctx.wiring import record

    done = record.bring_back(session) if redo else record.take_back(session)
    gone = [counted(done.messages, "message"), *([counted(done.compactions, "compaction")] if done.compactions else [])]
    out(f"{'brought' if redo else 'taken'} back: {clipped(done.words, _FIRST_WORDS)} ({', '.join(gone)})")
    command = f"localctx sessions undo {done.name}"
    note(f"take it back again: {command}" if redo else f"bring it back: {command} --redo")


@app.command("rm")
def remove(
    sessions: Annotated[list[str], typer.Argument(metavar="ID...", help="Sessions, or beginnings of their names.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove sessions with their results and work state, for good."""
    from localctx.wiring import record

    names = record.removable(sessions)
    if not yes and not _agreed(names):
        note("nothing was removed")
        return
    for name in names:
        record.sessions().remove(name)
        out(f"removed {name}")


def _agreed(names: list[str]) -> bool:
    what = f"{counted(len(names), 'session')} with all that was said ({', '.join(names)})"
    if sys.stdin is None or not sys.stdin.isatty():
        raise Misuse(f"this removes {what} for good; pass --yes if that is meant")
    note(f"remove {what} for good? (y/n)")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


# --- words and figures --------------------------------------------------------------------------------------------

_ESCAPED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def spelled(value: object) -> str:
    """A value as JSON that means the same wherever it is shown: nothing in it steers a terminal, or is no character."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def when(at: object) -> str:
    """A time as a journal has it (UTC, ISO 8601) in this machine's zone, to the minute."""
    try:
        return f"{datetime.fromisoformat(str(at)).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError):
        return "at an unknown time"


def counted(number: int, what: str) -> str:
    """A number of things: `1 message`, `2 messages`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _rows(fields: Mapping[str, object]) -> str:
    """The fields that are one value, a line each."""
    hidden = {"summary", "trouble", "tools", "work"}
    told = {name: value for name, value in fields.items() if value is not None and name not in hidden}
    return "\n".join(f"{name.replace('_', ' '):<19}  {_value(name, value)}" for name, value in told.items())


def _value(name: str, value: object) -> str:
    if name in {"at", "created", "written"}:
        return when(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else " ".join(str(value).split())
