"""Tokenizers that others made. Expected ids are those of the tokenizers library."""

import json
import pathlib

import pytest

import alibi_attention as alibi

if not alibi._core.has_models:
    pytest.skip("this build has the operator alone", allow_module_level=True)

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "tokenizers"
SMALL = {
    "added_tokens": [{"id": 4, "content": "</s>", "normalized": False, "special": True}],
    "post_processor": {"type": "BertProcessing", "sep": ["</s>", 4], "cls": ["</s>", 4]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u00c3": 3}, "merges": ["a b"]},
}


def test_a_tokenizer_is_loaded_from_a_file_or_its_folder(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(SMALL))
    for path in (file, str(file), tmp_path):
        tokenizer = alibi.Tokenizer.load(path)
        assert tokenizer.encode("abba</s>", add_special_tokens=False) == [2, 1, 0, 4]
    assert tokenizer.encode("ab") == [4, 2, 4]
    assert tokenizer.encode_pair("a", "b") == ([4, 0, 4, 1, 4], [0, 0, 0, 1, 1])
    assert tokenizer.decode([2, 4]) == "ab" and tokenizer.decode([2, 4], skip_special_tokens=False) == "ab</s>"
    assert tokenizer.decode([3]) == "\ufffd" and tokenizer.end_of_text == 4
    assert tokenizer.decode([2, 5, 0, 999]) == "aba"  # as the tokenizers library, for ids that no token has
    assert repr(tokenizer) == "Tokenizer(hf-bpe, vocab_size=5)"
    (tmp_path / "copy").mkdir()
    tokenizer.save(tmp_path / "copy")
    assert alibi.Tokenizer.load(tmp_path / "copy").encode("abba") == tokenizer.encode("abba")


def test_what_cannot_be_read_is_refused(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({**SMALL, "normalizer": {"type": "Frob"}}))
    with pytest.raises(alibi.Error, match="normalizer 'Frob', expected Sequence, NFC"):
        alibi.Tokenizer.load(file)
    with pytest.raises(alibi.UsageError, match="Tokenizer.load"):
        alibi.Tokenizer(3)


@pytest.mark.skipif(not FIXTURES.exists(), reason=f"there is no {FIXTURES}")
def test_tokenizers_give_the_ids_of_their_libraries():
    for folder in FIXTURES.iterdir():
        tokenizer = alibi.Tokenizer.load(folder)
        for case in json.loads((folder / "cases.json").read_text())["cases"]:
            ids = case["ids"]
            assert tokenizer.encode(case["text"], add_special_tokens=False) == ids, (folder.name, case)
            assert tokenizer.encode(case["text"], add_special_tokens=True) == case.get("ids_with_special", ids)
            assert tokenizer.decode(ids, skip_special_tokens=False) == case.get("decoded", case["text"])
