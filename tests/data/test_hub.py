"""Data sets of the hub's format, from local folders: the same library call, without a network."""

import json

import pytest

from lengthen.core.errors import UsageError
from lengthen.data import load_corpus
from lengthen.data.hub import HubName, articles

WIKITEXT = [
    "",
    " = Valkyria = \n",
    "",
    " Valkyria is a game . \n",
    " = not a title , for no blank line is above = \n",
    "",
    " = = Gameplay = = \n",
    "",
    " The gameplay . \n",
    "",
    "",
    " = A = B ( film ) = \n",
    "",
    " A film . \n",
]


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path_factory):
    """No network, and no cache outside the test's folder."""
    import datasets
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def parquet(folder, columns, split="train"):
    """A folder as the hub's snapshot of a data set has it."""
    import pyarrow
    import pyarrow.parquet

    (folder / "data").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.mark.parametrize("split", ["", "::train[:5]"])
def test_wikitext_rows_are_joined_to_whole_articles(tmp_path, split):
    corpus = load_corpus(f"hf:{parquet(tmp_path, {'text': WIKITEXT})}{split}")
    assert [d.name for d in corpus.documents] == ["0 Valkyria", "1 A = B ( film )"]
    whole = "".join(row or "\n" for row in WIKITEXT)
    assert "\n" + "".join(d.text for d in corpus.documents) == whole


def test_articles_of_lines_without_a_title_are_none():
    assert list(articles(["", "words\n", ""])) == []


def test_pg19_gives_a_book_per_row_with_its_title(tmp_path):
    books = {
        "short_book_title": ["Emma", "Persuasion"],
        "publication_date": [1815, 1817],
        "url": ["u", "v"],
        "text": ["e " * 9, "p " * 9],
    }
    corpus = load_corpus(f"hf:{parquet(tmp_path, books)}")
    assert [(d.name, d.text) for d in corpus.documents] == [("0 Emma", "e " * 9), ("1 Persuasion", "p " * 9)]


def test_arxiv_reads_the_article_and_any_column_that_is_named(tmp_path):
    papers = {"article": ["long one", "long two"], "abstract": ["short one", "short two"]}
    folder = parquet(tmp_path, papers, "test")
    assert [d.text for d in load_corpus(f"hf:{folder}::test").documents] == papers["article"]
    assert [d.text for d in load_corpus(f"hf:{folder}::test:abstract").documents] == papers["abstract"]
    with pytest.raises(UsageError, match="Did you mean 'abstract'"):
        load_corpus(f"hf:{folder}::test:abstrakt")


def test_json_lines_in_a_folder_and_a_limit_that_streams(tmp_path):
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"text": f"document {n}", "meta": {"n": n}}) + "\n" for n in range(9))
    )
    corpus = load_corpus(f"hf:{tmp_path}::train[:4]")
    assert [d.text for d in corpus.documents] == [f"document {n}" for n in range(4)]
    assert corpus.provenance["limit"] == 4 and corpus.provenance["repository"] == str(tmp_path)


def test_a_column_that_is_no_text_and_a_split_that_is_not_there_are_refused(tmp_path):
    folder = parquet(tmp_path, {"text": ["a"], "year": [1815]})
    with pytest.raises(UsageError, match="no text in its column 'year', but int"):
        load_corpus(f"hf:{folder}:::year")
    with pytest.raises(UsageError, match=r"could not be loaded: .*validation"):
        load_corpus(f"hf:{folder}::validation")


def test_without_a_network_the_error_says_so_and_names_the_way_out():
    with pytest.raises(UsageError, match=r"'hf:pg19' could not be loaded: .* Without a network, give a local folder"):
        load_corpus("hf:pg19")


def test_names_are_taken_apart():
    assert HubName.parse("wikitext") == HubName("Salesforce/wikitext", "wikitext-2-raw-v1", "train", None, None)
    assert HubName.parse("wikitext:wikitext-103-raw-v1:test") == HubName(
        "Salesforce/wikitext", "wikitext-103-raw-v1", "test", None, None
    )
    assert HubName.parse("me/set::train[:50]:body") == HubName("me/set", None, "train", "body", 50)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("hf:", "not of the form"),
        ("hf:a:b:c:d:e", "5 parts"),
        ("hf:a::train[5:]", "train\\[:50\\]"),
        ("hf:a::train[:0]", "got 0"),
    ],
)
def test_names_that_cannot_be_taken_apart_are_refused(spec, words):
    with pytest.raises(UsageError, match=words):
        load_corpus(spec)
