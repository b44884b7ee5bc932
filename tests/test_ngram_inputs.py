"""Inputs of `python -m dart ngram build`: what is read, in what order, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError

from dart.errors import ConfigError, HubError
from dart.ngram_build.records import chat_renderer
from dart.ngram_build.shards import Shard, list_shards

RENDER = chat_renderer(SimpleNamespace(chat_template=None))
CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def texts(shards: Sequence[Shard], on_broken=None) -> list[str]:
    return [text for shard in shards for text in shard.documents(RENDER, on_broken)]


def read(*inputs: object, **options) -> list[str]:
    return texts(list_shards([str(name) for name in inputs], **options))


def jsonl(*documents: object) -> str:
    return "".join(f"{json.dumps(document)}\n" for document in documents)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Lines


@settings(max_examples=150, deadline=None)
@given(
    documents=st.lists(st.text(max_size=12) | st.none(), max_size=12),
    line_end=st.sampled_from(["\n", "\r\n"]),
    ends_with_line_end=st.booleans(),
    ascii_only=st.booleans(),
    shard_bytes=st.integers(1, 200),
)
def test_lines_are_read_once(
    tmp_path_factory, documents, line_end, ends_with_line_end, ascii_only, shard_bytes
) -> None:
    """Prevents lost, doubled or torn lines where a file is cut: at, before or within line ends."""
    lines = [
        "" if text is None else json.dumps({"text": text}, ensure_ascii=ascii_only)
        for text in documents
    ]
    content = line_end.join(lines) + line_end * ends_with_line_end
    path = tmp_path_factory.getbasetemp() / "random.jsonl"
    try:
        write(path, content)
    except UnicodeEncodeError:  # half a surrogate pair, written as it is
        return
    shards = list_shards([str(path)], shard_bytes=shard_bytes)
    broken: list[str] = []
    expected = [text for text in documents if text is not None]
    lone = [text for text in expected if any("\ud800" <= char <= "\udfff" for char in text)]
    assert texts(shards, broken.append) == [text for text in expected if text not in lone]
    assert len(broken) == len(lone)
    assert sum(shard.num_bytes for shard in shards) == len(content.encode())
    assert len({shard.key for shard in shards}) == len(shards)


def test_large_files_become_many_shards_small_ones_one(tmp_path) -> None:
    """Prevents a machine from idling while one process reads the only file, or a run a file."""
    large = write(tmp_path / "large.jsonl", jsonl(*[{"text": "x" * 80}] * 100))
    assert len(list_shards([str(large)], shard_bytes=1000)) >= 9
    for i in range(100):
        write(tmp_path / "many" / f"{i:02}.txt", str(i))
    shards = list_shards([str(tmp_path / "many")], shard_bytes=100)
    assert [shard.num_bytes for shard in shards] == [100, 90]
    assert texts(shards) == [str(i) for i in range(100)]


@pytest.mark.parametrize("ending", [".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst"])
def test_packed_lines(tmp_path, ending) -> None:
    """Prevents packed files from being cut by the bytes they do not show."""
    content = jsonl(*({"text": f"é{i}"} for i in range(3000))).encode()
    if ending.endswith(".gz"):
        packed = gzip.compress(content)
    else:
        packed = pytest.importorskip("pyarrow").compress(content, "zstd", asbytes=True)
    path = write(tmp_path / f"a{ending}", packed)
    assert read(path, shard_bytes=100) == [f"é{i}" for i in range(3000)]
    write(path, packed[: len(packed) // 2])
    with pytest.raises(ConfigError, match=f"a{ending} is damaged"):
        read(path)
    write(path, b"no such thing")
    with pytest.raises(ConfigError, match=f"a{ending} is damaged"):
        read(path)


# Records


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"text": "a"}, "a"),
        ({"prompt": "a"}, "a"),
        ({"content": "a"}, "a"),
        ({"text": "", "prompt": "a"}, ""),
        ({"messages": CHAT, "text": "x"}, "a\nb"),
        ({"messages": None, "text": "x"}, "x"),
        ({"messages": []}, ""),
    ],
)
def test_which_field_is_the_text(tmp_path, record, text) -> None:
    """Prevents a store of ids, prompts or half a chat where the text stands beside them."""
    assert read(write(tmp_path / "a.jsonl", jsonl(record))) == [text]


def test_named_column(tmp_path) -> None:
    """Prevents a named column from being passed over for a usual one, in lines and tables."""
    records = [{"text": "no", "body": "yes"}, {"text": "no", "body": CHAT}]
    path = write(tmp_path / "a.jsonl", jsonl(*records))
    assert read(path, text_column="body") == ["yes", "a\nb"]
    with pytest.raises(ConfigError, match="line 1: expected a JSON object with corpus .it has tex"):
        read(path, text_column="corpus")


BROKEN = {
    "not JSON": b"{",
    "no object": b"[1]",
    "no text": b'{"txt": "a"}',
    "null": b'{"text": null}',
    "a number": b'{"text": 3}',
    "not UTF-8": b'{"text": "\xff"}',
    "half a pair": b'{"text": "\\ud800"}',
    "too deep": b"[" * 100_000,
    "messages without content": b'{"messages": [{"role": "user"}]}',
    "messages of numbers": b'{"messages": [1]}',
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
def test_broken_lines(tmp_path, line) -> None:
    """Prevents a traceback, a wrong line, and a skipped line that takes others with it."""
    good = [f'{{"text": "{i}"}}'.encode() for i in range(9)]
    content = b"\r\n".join([*good[:5], b"", line, *good[5:]])
    path = write(tmp_path / "a.jsonl", content)
    for shard_bytes in (20, 10**6):
        shards = list_shards([str(path)], shard_bytes=shard_bytes)
        with pytest.raises(ConfigError, match="a.jsonl, line 7: expected a JSON object with mess"):
            texts(shards)
        broken: list[str] = []
        assert texts(shards, broken.append) == [str(i) for i in range(9)]
        assert len(broken) == 1
        at = content.index(b"\n" + line + b"\r") + 1
        assert f"a.jsonl, the line at byte {at}: " in broken[0]


def test_chats_by_the_template() -> None:
    """Prevents chats without their marks, and a traceback where a template refuses one."""

    def apply(messages, tokenize):
        if messages[0]["role"] != "user":
            raise TemplateError("roles must alternate")
        return "".join(f"<{m['role']}>{m['content']}" for m in messages)

    render = chat_renderer(SimpleNamespace(chat_template="x", apply_chat_template=apply))
    assert render(CHAT) == "<user>a<assistant>b"
    with pytest.raises(ValueError, match="the chat template says: roles must alternate"):
        render(CHAT[1:])


# Plain text


def test_plain_text(tmp_path) -> None:
    """Prevents line ends of one system, and files of bytes, from getting into the counts."""
    path = write(tmp_path / "a.txt", "é\r\nb\rc\n")
    assert read(path) == ["é\nb\nc\n"]
    assert read(write(tmp_path / "empty", "")) == [""]
    binary = write(tmp_path / "b.so", b"\x7fELF\xff")
    with pytest.raises(ConfigError, match="b.so: expected UTF-8 text, or a name that ends in"):
        read(path, binary)
    broken: list[str] = []
    shards = list_shards([str(binary), str(path)])
    assert texts(shards, broken.append) == ["é\nb\nc\n"]
    assert len(broken) == 1


# Tables


@pytest.fixture
def write_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def write_it(name: str, row_group_size: int, **columns) -> Path:
        table = pyarrow.table({key: pyarrow.array(values) for key, values in columns.items()})
        parquet.write_table(table, tmp_path / name, row_group_size=row_group_size)
        return tmp_path / name

    return write_it


def test_tables_are_read_once(write_table) -> None:
    """Prevents row groups that no part or two parts read, wherever a file is cut."""
    rows = [f"é{i} " + "x" * (i * 7 % 50) for i in range(500)]
    path = write_table("a.parquet", 23, id=list(range(500)), text=rows)
    for shard_bytes in (50, 1000, 2345, 10**9):
        shards = list_shards([str(path)], shard_bytes=shard_bytes)
        assert texts(shards) == rows, shard_bytes
    shares = [len(texts([shard])) for shard in list_shards([str(path)], shard_bytes=6000)]
    assert sum(share > 100 for share in shares) > 2  # the cuts do divide the work


def test_columns_of_tables(write_table) -> None:
    """Prevents a table's text from being looked for in one place only."""
    assert read(write_table("a.parquet", 9, content=["a", "b"], prompt=["x", "y"])) == ["a", "b"]
    assert read(write_table("b.parquet", 9, messages=[CHAT], text=["x"])) == ["a\nb"]
    other = write_table("c.parquet", 9, id=[1], body=["a"])
    assert read(other, text_column="body") == ["a"]
    with pytest.raises(
        ConfigError, match="c.parquet has the columns id, body; expected messages, text, content or"
    ):
        read(other)
    with pytest.raises(ConfigError, match="columns id, body; expected txt.*--text-column"):
        read(other, text_column="txt")


def test_broken_rows(write_table, tmp_path) -> None:
    """Prevents an empty cell from ending a build that was told to skip, and a wrong row."""
    path = write_table("a.parquet", 2, text=["a", "b", "c", None, "e"])
    with pytest.raises(ConfigError, match="a.parquet, row 4: text has no text"):
        read(path)
    broken: list[str] = []
    assert texts(list_shards([str(path)]), broken.append) == ["a", "b", "c", "e"]
    assert len(broken) == 1
    write(path, path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="a.parquet is damaged"):
        read(path)


def test_without_pyarrow(tmp_path, monkeypatch) -> None:
    """Prevents an ImportError, hours into a build."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("a.parquet", "a.jsonl.zst"):
        path = write(tmp_path / name, b"")
        with pytest.raises(ConfigError, match=f"{name} needs the package pyarrow.*pip install"):
            list_shards([str(path)])
    assert read(write(tmp_path / "a.jsonl", jsonl({"text": "a"}))) == ["a"]


# Names


def test_folders_and_globs(tmp_path, monkeypatch) -> None:
    """Prevents an order that differs between machines, hidden files, and files counted twice."""
    for name in ("b/2.txt", "b/10.txt", "a/z.txt", "a.md", ".git/x", "b/.hidden", "a/[1].txt"):
        write(tmp_path / "in" / name, name)
    write(tmp_path / "in" / "c.jsonl", jsonl({"text": "c"}))
    everything = ["a/[1].txt", "a/z.txt", "a.md", "b/10.txt", "b/2.txt", "c"]
    monkeypatch.chdir(tmp_path)
    assert read("in") == everything
    assert read(tmp_path / "in") == everything
    assert read("in/**") == everything
    assert read("in/*/*.txt") == ["a/[1].txt", "a/z.txt", "b/10.txt", "b/2.txt"]
    assert read("in/a/[1].txt") == ["a/[1].txt"]
    assert read("in/b", "in", "in/a.md") == ["b/10.txt", "b/2.txt", *everything[:3], "c"]
    Path("empty").mkdir()
    for nothing in ("absent.txt", "in/*.rst", "empty", "in/a.md/x"):
        with pytest.raises(ConfigError, match="is no file, nor a folder or pattern that has files"):
            list_shards(["in", nothing])


def test_shards_travel(tmp_path, monkeypatch) -> None:
    """Prevents a shard that another process, in another folder, cannot read."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", jsonl({"text": "a"}, {"text": "b"}))
    shards = pickle.loads(pickle.dumps(list_shards(["a.jsonl"], shard_bytes=10)))
    keys = [shard.key for shard in list_shards(["a.jsonl"], shard_bytes=10)]
    monkeypatch.chdir("/")
    assert texts(shards) == ["a", "b"]
    assert [shard.key for shard in shards] == keys


def test_changed_files(tmp_path) -> None:
    """Prevents counts of a file that changed under the reader, and a resumed build of two texts."""
    path = write(tmp_path / "a.jsonl", jsonl({"text": "a"}))
    shards = list_shards([str(path)])
    os.utime(path, ns=(1, 1))
    with pytest.raises(ConfigError, match="a.jsonl changed while it was being read"):
        texts(shards)
    assert list_shards([str(path)])[0].key != shards[0].key
    assert list_shards([str(path)], text_column="x")[0].key != list_shards([str(path)])[0].key
    path.unlink()
    with pytest.raises(ConfigError, match="a.jsonl is gone. Every machine"):
        texts(shards)


# URLs, with a file system in memory in the place of the hub's


@pytest.fixture
def remote():
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def test_datasets_behind_urls(remote, tmp_path, write_table) -> None:
    """Prevents a hub dataset's README from being counted, and its data from being left out."""
    rows = [f"row {i}" for i in range(100)]
    remote.pipe("/owner/name/README.md", b"read me")
    remote.pipe("/owner/name/data/b.jsonl", jsonl(*({"text": row} for row in rows)).encode())
    remote.pipe("/owner/name/data/c.json.gz", gzip.compress(jsonl({"text": "c"}).encode()))
    remote.pipe("/owner/name/data/a.parquet", write_table("a", 7, text=rows).read_bytes())
    for shard_bytes in (50, 10**6):
        assert read("memory://owner/name", shard_bytes=shard_bytes) == [*rows, *rows, "c"]
    assert read("memory://owner/name/*/*.json*") == [*rows, "c"]
    assert read("memory://owner/name/README.md") == ["read me"]
    shards = list_shards(["memory://owner/name/data/b.jsonl"])
    with pytest.raises(ConfigError, match="nothing is no file"):
        list_shards(["memory://owner/nothing"])
    remote.pipe("/owner/name/data/b.jsonl", b"{}")
    with pytest.raises(ConfigError, match="b.jsonl changed"):
        texts(shards)
    remote.rm("/owner/name/data/b.jsonl")
    with pytest.raises(ConfigError, match="b.jsonl is gone"):
        texts(shards)


def test_hub_that_does_not_answer(remote, monkeypatch) -> None:
    """Prevents a client's traceback, when names are listed, when a file is opened and in it."""
    remote.pipe("/owner/name/a.jsonl", jsonl({"text": "a"}).encode())
    shards = list_shards(["memory://owner/name"])

    def fail(*_, **__):
        raise RuntimeError("Name or service not known\nand more")

    for method in ("_open", "info"):
        with monkeypatch.context() as patch:
            patch.setattr(type(remote), method, fail)
            with pytest.raises(HubError, match="a.jsonl did not answer .Name or service not known"):
                texts(shards)
    with monkeypatch.context() as patch:
        patch.setattr("dart.ngram_build.files._system", lambda _: (remote, "/owner/name/a.jsonl"))
        patch.setattr("fsspec.implementations.memory.MemoryFile.readinto", fail, raising=False)
        with pytest.raises(HubError, match="did not answer"):
            texts(shards)
    with pytest.raises(HubError, match="nope://x/y did not answer"):
        list_shards(["nope://x/y"])
