"""Long-form measures: numbers worked by hand, what holds for any text, a model made on the spot, and no credit for a denial that is
flagged."""
import json
import math
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import cases, examples
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip('sacrebleu')
pytest.importorskip('rouge_score')
pytest.importorskip('nltk')

from cpqa.evaluation import longform
from cpqa.evaluation.longform import LongformError, LongformScores, Scorer, bertscore, bleu1, longform_scores, meteor, rouge1

WORDS = [bleu1, rouge1, meteor]
HAND = [   # answer, reference, BLEU-1, ROUGE-1 F, METEOR (exact, stem)
    ('pain fell', 'pain fell', 1, 1, 1 - .5 * (1/2)**3),
    ('pain', 'pain', 1, 1, .5),
    ('pain', 'cough', 0, 0, 0),
    ('pain fell', 'pain rose', 1/2, 1/2, 1/2 * (1 - .5)),
    ('pain', 'pain fell', math.exp(-1), 2/3, 1 / (.9*2 + .1) * (1 - .5)),                        # precision 1, recall 1/2
    ('pain pain pain', 'pain', 1/3, 1/2, (1/3) / (.9 / 3 + .1) * (1 - .5)),                       # clipped; precision 1/3, recall 1
    ('PAIN FELL', 'pain fell', 1, 1, 1 - .5 * (1/2)**3),
    ('pains', 'pain', 0, 1, .5),                                                                  # stems: not in BLEU
    ('fell pain', 'pain fell', 1, 1, 1 - .5 * (2/2)**3),                                          # order counts in METEOR alone
    ('β', 'β', 1, 0, .5),                                                                         # rouge-score knows a-z and 0-9
    ('Ünal 2', 'Ünal 2', 1, 1, 1 - .5 * (1/2)**3),
    ('', 'pain', 0, 0, 0),
]


@cases('row', HAND)
def test_by_hand(row):
    text, reference, *expected = row
    assert [make().score([text], [reference])[0] for make in WORDS] == pytest.approx(expected)


SOME = st.one_of(st.lists(st.sampled_from(['tea', 'Tea', 'not', 'sleeps', 'sleep', 'β', '3.5', ',', 'no', 'increased', 'reduced', '\n']),
                          max_size=9).map(' '.join), st.text(max_size=30))
BUILT = [make() for make in WORDS]


@given(SOME, SOME)
def test_any_two_texts(a, b):
    for scorer in BUILT:
        value, own = scorer.score([a, a], [b, a])
        assert 0 <= value <= 1 + 1e-9 and (value <= own + 1e-9 or scorer.name.startswith('METEOR') or not own)


@given(st.dictionaries(st.integers(0, 5), st.one_of(st.none(), SOME)), st.lists(SOME.filter(str.strip), min_size=1, max_size=3))
@examples(40)
def test_any_set_of_questions(predictions, references):
    "Every question counts, missing ones as zero, and the safe mean is never above the other."
    both = {several: longform_scores(predictions, dict.fromkeys(range(6), references), BUILT, several) for several in ('best', 'mean')}
    for found in both.values():
        assert found.n == 6 and set(found.missing) == {i for i in range(6) if not (predictions.get(i) or '').strip()}
        for score in found.scores.values():
            assert len(score.values) == 6 and all(score.values[i] == 0 for i in found.missing)
            assert score.mean.value == pytest.approx(sum(score.values.values()) / 6) and score.safe.value <= score.mean.value + 1e-12
            assert score.safe.value == pytest.approx(sum(v for i, v in score.values.items() if i not in found.flagged) / 6)
    assert all(both['mean'].scores[k].values[i] <= v + 1e-12 for k, s in both['best'].scores.items() for i, v in s.values.items())


def test_any_reference_that_is_denied_flags_the_question():
    found = longform_scores({'q': 'The gel reduced scars.'}, {'q': ['The gel helps.', 'The gel did not reduce scars.']}, ['bleu1'])
    assert list(found.flagged) == ['q'] and found['bleu1'].values['q'] > .5 and found['bleu1'].safe.value == 0
    assert LongformScores.from_json(found.to_json()) == found


def test_measures_of_ones_own():
    length = Scorer('Length', 'characters', lambda texts, references: [len(t) / 10 for t in texts])
    assert longform_scores({'q': 'tea'}, {'q': 'tea'}, [length])['Length'].values == {'q': .3}


@cases('arguments, says', [
    (({}, {}), 'no references'), (({}, {'q': ' '}), 'without a reference'), (({'x': 'a'}, {'q': 'a'}), 'x'),
    (({'q': b'a'}, {'q': 'a'}), 'no text'),
    (({}, {'q': 'a'}, ['bleu']), 'bleu1'), (({}, {'q': 'a'}, ['bleu1'], 'worst'), 'worst')])
def test_bad_input(arguments, says):
    with pytest.raises(LongformError, match=says): longform_scores(*arguments)


def test_wordnet_is_asked_for_by_name(monkeypatch):
    "With synonyms where nltk has them, and a sentence that says what to do where not; no figure without its stages."
    class Reader:
        def ensure_loaded(self): pass
        def synsets(self, word): return [Synset()] if word == 'tumour' else []
    class Synset:
        def lemmas(self): return [Lemma()]
    class Lemma:
        def name(self): return 'neoplasm'
    class Missing(Reader):
        def ensure_loaded(self): raise LookupError('wordnet')
    import nltk.corpus
    monkeypatch.setattr(nltk.corpus, 'wordnet', Reader())
    assert meteor(wordnet=True).name == 'METEOR (exact, stem, WordNet)' and meteor().name == 'METEOR (exact, stem)'
    assert [m.score(['tumour'], ['neoplasm']) for m in (meteor(wordnet=True), meteor())] == [[.5], [0]]
    monkeypatch.setattr(nltk.corpus, 'wordnet', Missing())
    with pytest.raises(LongformError, match='nltk.downloader wordnet'): meteor(wordnet=True)


# ---- BERTScore

@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
    "A BERT of two small random layers, with the vocabulary of a few words."
    pytest.importorskip('bert_score')
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    folder = tmp_path_factory.mktemp('tiny')
    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'tea', 'sleep', 'improves', 'does', 'not', 'coffee', '##s', '.']
    (folder/'vocab.txt').write_text('\n'.join(words) + '\n', encoding='utf-8')
    transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(words)}, model_max_length=32).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=32, max_position_embeddings=32)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def by_hand(folder, layer: int, text: str, reference: str) -> float:
    "The mean, over the answer's words, of the highest cosine with a word of the reference."
    import torch
    import transformers
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()
    def vectors(t):
        with torch.no_grad(): hidden = model(**tokenizer(t, return_tensors='pt'), output_hidden_states=True).hidden_states[layer][0]
        return torch.nn.functional.normalize(hidden, dim=-1)
    cosines = vectors(text) @ vectors(reference).T
    return cosines.max(1).values[1:-1].mean().item()   # [CLS] and [SEP] may be matched, and do not count


def test_bertscore_agrees_with_its_definition(tiny):
    for layer in (1, 2):
        scorer = bertscore(tiny, layer, device='cpu')
        pairs = [('tea improves sleep', 'coffee does not'), ('teas', 'tea improves sleep.'), ('sleep', 'sleep')]
        assert scorer.score(*zip(*pairs)) == pytest.approx([by_hand(tiny, layer, *p) for p in pairs], abs=1e-4)
        assert f'{tiny.name}, layer {layer}, raw' in scorer.name


def test_a_baseline_is_taken_by_name(tiny):
    "(P - b) / (1 - b), b the P of the layer's row in bert-score's own file; zero for an empty text all the same."
    import bert_score
    rows = (Path(bert_score.__file__).parent/'rescale_baseline'/'en'/'bert-base-uncased.tsv').read_text().splitlines()
    b = float(dict(zip(rows[0].split(','), rows[3].split(',')))['P'])   # layers 0, 1, 2
    raw, rescaled = bertscore(tiny, 2, device='cpu'), bertscore(tiny, 2, rescale='bert-base-uncased', device='cpu')
    pair = ['tea improves sleep', ''], ['coffee does not', 'tea']
    assert rescaled.score(*pair) == pytest.approx([(raw.score(*pair)[0] - b) / (1 - b), 0], abs=1e-4)
    assert rescaled.name.endswith('rescaled)') and 'rescale_with_baseline=bert-base-uncased' in rescaled.settings


def test_bertscore_of_odd_texts(tiny, capsys):
    scorer = bertscore(tiny, 2, device='cpu')
    odd = ['', ' \n', '\u200b', '\x00', 'β Ünï 研究', 'tea ' * 500, 'tea']
    values = scorer.score(odd, ['tea'] * len(odd))
    assert values[:4] == [0, 0, 0, 0] and all(0 <= v <= 1 for v in values) and values[-1] == 1
    assert scorer.score(['tea'] * 4, odd[:4]) == [0] * 4 and scorer.score([], []) == []
    assert scorer.score(odd[::-1], ['tea'] * len(odd)) == pytest.approx(values[::-1], abs=1e-4)
    assert capsys.readouterr() == ('', '')


def test_bertscore_of_a_model_with_byte_pairs(tmp_path):
    "RoBERTa, the kind of model that the papers use, takes another way through bert-score."
    pytest.importorskip('bert_score')
    transformers = pytest.importorskip('transformers')
    letters = ['<s>', '<pad>', '</s>', '<unk>', '<mask>', *'tea.slp', 'Ġ', 'Ġt']
    transformers.RobertaTokenizer(vocab={w: i for i, w in enumerate(letters)}, merges=[('Ġ', 't')],
                                  model_max_length=30).save_pretrained(tmp_path)
    config = transformers.RobertaConfig(vocab_size=len(letters), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                        intermediate_size=32, max_position_embeddings=34, pad_token_id=1)
    transformers.RobertaModel(config).save_pretrained(tmp_path)
    assert bertscore(tmp_path, 1, device='cpu').score(['tea', ''], ['tea', 'tea']) == [1, 0]


@cases('make, says', [
    (lambda t: bertscore(t), 'which layer'), (lambda t: bertscore(t, 7), 'layer 7'), (lambda t: bertscore(t, 1, rescale=True), 'rescaled'),
    (lambda t: bertscore(t, 1, rescale='tiny'), "no baseline .* 'tiny'"), (lambda t: bertscore(t.parent), 'which layer'),
    (lambda t: bertscore(t.parent, 1), 'config.json'), (lambda t: bertscore('scibert-basevocab-cased', 1), 'shell')])
def test_bertscore_refuses(tiny, make, says):
    with pytest.raises(LongformError, match=says): make(tiny)


def test_a_path_that_bert_score_would_misread(tiny):
    moved = tiny.parent/'visit5'
    moved.symlink_to(tiny)
    assert bertscore(moved, 1, device='cpu').name.startswith('BERTScore P (')   # the path that is read is the real one
    copy = tiny.parent/'adult5'
    copy.mkdir()
    for f in tiny.iterdir(): (copy/f.name).write_bytes(f.read_bytes())
    with pytest.raises(LongformError, match='T5 model'): bertscore(copy, 1)


def test_no_download_is_tried(tiny, monkeypatch):
    "A folder needs no network, and a name that is not here fails with a sentence; sockets are closed for all tests."
    tried = []
    for name in ('getaddrinfo', 'create_connection'): monkeypatch.setattr(socket, name, lambda *a, **k: tried.append(a))
    assert bertscore().score(['tea'], ['tea']) == [1] and tried == []
    monkeypatch.undo()
    assert bertscore(tiny, 1, device='cpu').score(['tea'], ['tea']) == [1]
    with pytest.raises(LongformError, match='no-such-model'): bertscore('no-such-model', 1)


def test_the_module_is_light():
    heavy = ['torch', 'transformers', 'bert_score', 'nltk', 'sacrebleu', 'rouge_score', 'scipy', 'openvino']
    show = f'import cpqa.evaluation.longform, json, sys; print(json.dumps([m for m in {heavy} if m in sys.modules]))'
    assert json.loads(subprocess.run([sys.executable, '-c', show], capture_output=True, text=True, check=True).stdout) == []


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'sacrebleu.metrics', None)
    monkeypatch.setitem(sys.modules, 'sacrebleu', None)
    with pytest.raises(longform.CpqaError, match=r'cpqa\[longform\]'): bleu1()
