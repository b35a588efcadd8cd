"""What a probe found, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from localctx.cli.render import columns, note, out, printable, window_json
from localctx.cli.wording import source_text, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from localctx.core.window import ModelReport, ServerReport
    from localctx.hardware.machine import Machine

__all__ = ["probe_json", "probe_table", "table_lines"]


def probe_json(machine: Machine, reports: Sequence[ServerReport], took: float) -> None:
    """The probe's answer for programs; `took` is in seconds."""
    document = {
        "schema": 1,
        "took_ms": round(took * 1000),
        "machine": asdict(machine),
        "runtimes": [_report_json(report) for report in reports],
    }
    out(json.dumps(document, ensure_ascii=False, indent=1))


def _report_json(report: ServerReport) -> dict[str, object]:
    return {
        "runtime": report.runtime,
        "url": report.url,
        "version": report.version,
        "status": report.status,
        "error": report.error,
        "models": [_model_json(model) for model in report.models],
    }


def _model_json(model: ModelReport) -> dict[str, object]:
    return {
        "id": model.id,
        "loaded": model.loaded,
        "trained": model.trained,
        "slots": model.slots,
        "shared_pool": model.shared_pool,
        "template": model.template,
        "window": window_json(model.window),
        "memory": {
            "model_bytes": model.model_bytes,
            "in_vram_bytes": model.in_vram_bytes,
            "kv_bytes_per_token": None,  # no server says it; localctx fit works it out from the file
        },
        "warnings": [asdict(warning) for warning in model.warnings],
    }


def probe_table(reports: Sequence[ServerReport], *, quiet_down: bool) -> None:
    """The probe's answer for people; addresses where nothing answers are named in one line with `quiet_down`."""
    for line in table_lines(reports, quiet_down=quiet_down):
        out(wrapped(line, columns()))
    quiet = [report.url.removeprefix("http://") for report in reports if quiet_down and report.status == "down"]
    if quiet:
        note(f"nothing answers at {', '.join(quiet)}")


def table_lines(reports: Sequence[ServerReport], *, quiet_down: bool) -> Iterator[str]:
    """The lines of the table, without the addresses where nothing answers if `quiet_down`."""
    for report in reports:
        if quiet_down and report.status == "down":
            continue
        version = f" {report.version}" if report.version else ""
        yield printable(f"{report.runtime or 'unknown server'}{version} at {report.url}: {report.status}", None)
        if report.error:
            yield f"  ! {printable(report.error, None)}"
        for model in report.models:
            yield from (printable(line, None) for line in _model_lines(model))


def _model_lines(model: ModelReport) -> Iterator[str]:
    window, tokens = model.window, model.window.tokens
    yield f"  {model.id}{'' if model.loaded else ' (not loaded)'}"
    shown = "unknown" if tokens is None else f"{tokens:,}"
    sure = "" if tokens is None else f"{window.confidence}  "
    yield f"    window    {shown:>9}  {sure}({source_text(window)})"
    pool = model.shared_pool
    facts: Mapping[str, object] = {
        "trained": model.trained,
        "slots": model.slots,
        "pool": pool,
        "template": model.template,
    }
    for name, value in facts.items():
        if value is not None:
            yield f"    {name:<9} {f'{value:,}' if isinstance(value, int) else value:>9}"
    for warning in model.warnings:
        yield f"    ! {warning.code}: {warning.text}"
        yield f"      fix: {warning.fix}"
