"""The command line: exit codes, what is printed where, one line an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dart import pure
from dart.__main__ import COMMANDS, main
from dart.cli.chat import Chat, paint, pieces_of
from dart.cli.common import printable, write_json
from dart.decode import Step
from dart.errors import ConfigError
from dart.text import TextStream

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def flags(conformance, tmp_path_factory) -> list[str]:
    """Flags that name the recorded models."""
    return [
        *("--base-model-name-or-path", str(conformance / "target")),
        *("--dart-model-name-or-path", str(conformance / "dart_head")),
        *("--eagle3-model-name-or-path", str(conformance / "eagle3_head")),
        *("--ngram-model-name-or-path", str(store_of(conformance, tmp_path_factory.mktemp("ng")))),
        *("--device", "cpu"),
    ]


def store_of(conformance: Path, folder: Path) -> Path:
    """The recorded trie, imported to where the test may write."""
    from dart.ngram import import_trie

    import_trie(conformance / "ngram/small.trie", folder / "small.ngram")
    return folder / "small.ngram"


def fails(capsys, *argv: str) -> str:
    """The command must end with exit code 2 and one line on stderr, which is returned."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("error: ")
    return lines[0]


def generate(capsys, flags: list[str], *more: str) -> dict:
    """The object that generate --json prints."""
    argv = ["generate", "--prompt", "w5 w9", "--max-new-tokens", "30", "--json", *flags, *more]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_generate_json_fields(capsys, flags):
    """Prevents a change of the fields that people's programs read."""
    result = generate(capsys, flags)
    assert {"text", "tokens", "prompt_tokens", "decoder", "accept_lengths", "tau", "seconds",
            "tokens_per_second"} <= result.keys()  # fmt: skip
    assert {"prefill", "decode", "draft", "search", "verify"} <= result["seconds"].keys()
    assert result["decoder"] == "dart"
    assert result["prompt_tokens"] == 2
    assert len(result["tokens"]) == 30 or result["finish_reason"] == "eos"
    after = len(result["tokens"]) - 1
    assert result["tau"] == pytest.approx(after / len(result["accept_lengths"]))
    assert result["tokens_per_second"] == pytest.approx(after / result["seconds"]["decode"])


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_decoders_print_one_text(capsys, flags, temperature):
    """Prevents a flag from reaching one decoder only: the same seed must give the same text."""
    sampling = ("--temperature", temperature, "--top-k", "20", "--top-p", "0.9", "--seed", "5")
    dart = generate(capsys, flags, *sampling)
    baseline = generate(capsys, flags, *sampling, "--decoder", "baseline")
    eagle3 = generate(capsys, flags, *sampling, "--decoder", "eagle3")
    assert dart["tokens"] == eagle3["tokens"] == baseline["tokens"]
    assert dart["text"] == eagle3["text"] == baseline["text"]
    assert dart["tau"] > 1
    assert eagle3["tau"] > 1
    assert set(baseline["accept_lengths"]) == {0}
    assert baseline["tau"] == 1


def test_generate_streams_the_text_of_the_json(capsys, flags, monkeypatch):
    """Prevents statistics mixed into the text, and stdin read differently from --prompt."""
    import io

    expected = generate(capsys, flags)["text"]
    monkeypatch.setattr("sys.stdin", io.StringIO("w5 w9\n"))
    assert main(["generate", "--prompt", "-", "--max-new-tokens", "30", *flags]) == 0
    captured = capsys.readouterr()
    assert captured.out == expected + "\n"
    assert "tokens/s" in captured.err


def test_template_name(capsys, flags):
    """Prevents --template-name from being taken and ignored."""
    longer = generate(capsys, flags, "--template-name", "qwen")
    assert longer["prompt_tokens"] > 2
    said = fails(capsys, "generate", "--prompt", "x", "--template-name", "nope", *flags)
    assert "qwen" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--device", "cuda:97"], "cuda:97 was asked for; this machine has"),
        (["--device", "toaster"], "toaster was asked for; this machine has"),
        (["--decoder", "nope"], "nope"),
        (["--temperature", "-1"], "temperature"),
        (["--max-new-tokens", "0"], "max_new_tokens"),
        (["--max-length", "2"], "max_length"),
        (["--dart-model-name-or-path", "./absent"], "absent"),
        (["--ngram-model-name-or-path", "./absent"], "absent"),
        (["--base-model-name-or-path", "./absent"], "absent"),
        (["--max-new-tokens", "many"], "invalid int"),
        (["--prompt", "\udcff"], "UTF-8"),
        (["--ngram", "trie"], "invalid choice: 'trie'"),
        (["--score", "best"], "invalid choice: 'best'"),
        (["--score", "fitted"], "no acceptance model"),
    ],
)
def test_errors_are_one_line(capsys, flags, more, words):
    """Prevents tracebacks, and errors that do not say what was wrong."""
    said = fails(capsys, "generate", "--prompt", "w5 w9", *flags, *more)
    assert words in said


def test_a_head_needs_its_target(capsys):
    """Prevents a head given without a target from being ignored for the demo's."""
    said = fails(capsys, "generate", "--prompt", "x", "--dart-model-name-or-path", "head")
    assert "--base-model-name-or-path" in said


def test_commands(capsys):
    """Prevents a command without help, and a typo that ends in a traceback."""
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert main([]) == 2
    assert main(["--version"]) == 0
    for name in COMMANDS:
        if name != "train":
            assert main([name, "--help"]) == 0
    capsys.readouterr()
    assert "generate" in fails(capsys, "genrate")
    assert "--prompt" in fails(capsys, "generate")


def test_help_is_fast():
    """Prevents --help from importing torch, which takes seconds."""
    code = (
        "import sys; from dart.__main__ import main; main(['--help']); "
        "main(['generate', '--help']); main(['bench', '--help']); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_interrupt_is_130(monkeypatch, capsys):
    """Prevents a traceback on Ctrl-C."""

    def interrupted(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("dart.cli.info.main", interrupted)
    assert main(["info"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_missing_extension_is_explained(monkeypatch, capsys, tmp_path):
    """Prevents a traceback from greeting who makes a store where no extension can be built."""
    monkeypatch.setattr("dart.ngram._core", pure)
    said = fails(capsys, "ngram", "import", "any.trie", str(tmp_path / "x.ngram"))
    assert "needs the C++ extension" in said


def test_info_json(capsys, flags):
    """Prevents `info` from hiding what is loaded."""
    assert main(["info", "--json", *flags]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["extension"] is True
    assert facts["fallback"] is None
    assert facts["model"]["decoders"] == ["dart", "eagle3", "baseline"]
    assert facts["model"]["ngram_store"]["order"] == 3
    assert facts["model"]["parameters"] > 0
    assert facts["model"]["eagle3_head_parameters"] > 0


def test_bench_writes_its_figures(capsys, flags, tmp_path, monkeypatch):
    """Prevents a result file without the figures, the identity or the provenance."""
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "w5 w9"}\n{"prompt": "w20 w31 w7"}\n', encoding="utf-8")
    out = tmp_path / "out.json"
    argv = ["bench", "--decoders", "baseline,dart,dart:context:upstream:9,eagle3"]
    more = tmp_path / "more.jsonl"
    more.write_text('{"prompt": "w8", "task": "other"}\n', encoding="utf-8")
    argv += ["--prompts", str(prompts), str(more)]
    argv += ["--max-new-tokens", "24", "--json", str(out), "--hf-generate", *flags]
    monkeypatch.setattr("dart.progress._REDRAW_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(argv) == 0
    captured = capsys.readouterr()
    assert "speedup" in captured.out
    drawn = captured.err.split("\r")
    assert drawn[-1].startswith("[100%] decoding")
    assert "tokens/s" in drawn[-1]
    assert drawn[-1].endswith("\n")
    result = json.loads(out.read_text(encoding="utf-8"))
    names = {"baseline", "dart", "dart:context:upstream:9", "eagle3", "hf_generate"}
    assert set(result["decoders"]) == names
    for entry in result["decoders"].values():
        assert {"tokens_per_second", "tau", "speedup", "accept_length_histogram", "seconds",
                "identical_to_baseline"} <= entry.keys()  # fmt: skip
        assert entry["identical_to_baseline"] is True
    assert result["decoders"]["dart"]["tau"] > 1
    assert 6 < result["decoders"]["dart:context:upstream:9"]["mean_tree_size"] <= 9
    assert set(result["decoders"]["dart"]["by_task"]) == {"", "other"}
    assert result["decoders"]["eagle3"]["tau"] > 1
    assert result["provenance"]["command"].startswith("python -m dart bench --decoders")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "more",
    [
        ["--decoders", ""],
        ["--decoders", "dart,dart"],
        ["--repeats", "0"],
        ["--limit", "0"],
        ["--json", "no/such/folder/out.json"],
        ["--json", "."],
        ["--hf-generate", "--temperature", "1"],
        ["--prompts", "absent.jsonl"],
        ["--decoders", "baseline,nope"],
        ["--decoders", "baseline,dart:nope"],
        ["--decoders", "baseline,dart:"],
        ["--decoders", "baseline,dart:fitted"],
        ["--decoders", "baseline,eagle3:static"],
    ],
)
def test_bench_refuses_before_it_runs(capsys, flags, tmp_path, more):
    """Prevents an hour of benchmark from ending in an error that could be known before."""
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "w5 w9"}\n', encoding="utf-8")
    fails(capsys, "bench", "--prompts", str(prompts), *flags, *more)


def test_old_results_survive(tmp_path, monkeypatch):
    """Prevents half a result in the place of an old one when the disk is full."""
    out = tmp_path / "out.json"
    write_json(out, {"runs": 1})

    def full(path, text, **_):
        path.write_bytes(text[:3].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ConfigError, match="cannot be written: .*No space left"):
        write_json(out, {"runs": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert json.loads(out.read_text("utf-8")) == {"runs": 1}


def test_ngram_build_and_info(capsys, conformance, tmp_path):
    """Prevents stores built from other tokens than the tokenizer's."""
    from dart.ngram import NgramStore

    texts = tmp_path / "t.jsonl"
    texts.write_text('{"text": "w5 w9 w5 w9"}\n{"prompt": "w5 w9"}\n', encoding="utf-8")
    store = tmp_path / "s.ngram"
    tokenizer = str(conformance / "target")
    argv = ["ngram", "build", "--input", str(texts), "--tokenizer", tokenizer]
    assert main([*argv, "--output", str(store), "--exact"]) == 0
    assert NgramStore.open(store).counts([5, 9]) == 3
    assert "n-grams with counts" in capsys.readouterr().out
    assert main(["ngram", "info", str(store), "--verify", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["order"], facts["exact"], len(facts["levels"])) == (3, True, 3)
    assert main([*argv, "--output", str(store), "--bits", "2"]) == 0
    assert "n-grams with rounded probabilities" in capsys.readouterr().out
    assert main(["ngram", "info", str(store), "--verify"]) == 0
    assert "verified: every checksum" in capsys.readouterr().out
    assert "bits is 9" in fails(capsys, *argv, "--output", str(store), "--bits", "9")
    store.write_bytes(store.read_bytes()[:-1])
    fails(capsys, "ngram", "info", str(store))
    texts.write_text('{"text": "w5"}\n{"txt": "w5"}\n', encoding="utf-8")
    assert "line 2" in fails(capsys, *argv, "--output", str(store))
    assert "absent" in fails(capsys, "ngram", "import", "absent.trie", str(store))


def test_chat(capsys, flags, monkeypatch):
    """Prevents a chat that dies of a wrong command or forgets which decoder is on."""
    lines = iter(["w5 w9", "/decoder baseline", "/nope", "/reset", "w5 w9", "/quit"])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(lines))
    assert main(["chat", "--max-new-tokens", "12", *flags]) == 0
    captured = capsys.readouterr()
    assert "dart: [12 tokens" in captured.out
    assert "baseline: [12 tokens" in captured.out
    assert "\x1b" not in captured.out  # no terminal, no colours
    assert captured.err.count("error: /nope is no command") == 1


def test_chat_keeps_the_conversation_only_of_answers(flags, monkeypatch, capsys):
    """Prevents a message that could not be answered from spoiling the rest of the chat."""
    from dart.cli.chat import parser
    from dart.cli.common import load_model
    from dart.errors import PromptTooLongError

    args = parser().parse_args(["--max-length", "8", "--template-name", "plain", *flags])
    chat = Chat(load_model(args), args, paint)
    with pytest.raises(PromptTooLongError):
        chat.take("w5 " * 20)
    assert chat.messages == []
    chat.take("w5 w9")
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]


def test_accepted_tokens_are_marked():
    """Prevents the bonus token from being shown as drafted."""

    class Words:
        def decode(self, tokens, **_):
            return "".join(f"{token} " for token in tokens)

    step = Step([1, 2, 3], accept_length=2)
    pieces = pieces_of(step, TextStream(Words()))
    assert pieces == [("1 ", True), ("2 ", True), ("3 ", False)]
    assert paint("a", True) != paint("a", False) == "a"


def test_printable_disarms_escape_sequences():
    """Prevents model text from steering the terminal."""
    assert printable("a\x1b[2J\r\x07b") == "a\\x1b[2J\\x0d\\x07b"
    kept = "ü\n\t 漢 \u00a0é"
    assert printable(kept) == kept
