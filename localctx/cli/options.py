"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["ApiKeyEnv", "AsJson", "MaxContext", "Model", "NumCtx", "RuntimeKind"]

Model = Annotated[str | None, typer.Option("--model", help="The model, as the server calls it; or a GGUF file.")]
RuntimeKind = Annotated[
    str | None,
    typer.Option(
        "--runtime", help="ollama, llama-server, vllm, sglang, lmstudio, openai (any compatible), or embedded."
    ),
]
NumCtx = Annotated[int | None, typer.Option("--num-ctx", help="Pin the window to this many tokens.")]
MaxContext = Annotated[int | None, typer.Option("--max-context", help="A ceiling for the window; it only lowers.")]
ApiKeyEnv = Annotated[str | None, typer.Option("--api-key-env", help="The environment variable that holds the key.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout and nothing else.")]
