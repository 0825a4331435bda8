"""What the cells of literature/article_files cannot show: every kind of file under every name, and a library built from full texts."""
import gzip
import os
from pathlib import Path

import pytest
from conftest import ROOT, cases
from helpers import complaint, cpqa, good, inside

from cpqa.core.records import Document
from cpqa.literature.article_files import documents, read_file
from cpqa.literature.library import Library
from cpqa.literature.pubmed import ReadError

DATA = Path(os.environ.get('CPQA_DATA', ROOT.parent/'shared'/'data'))
JATS = ('<article article-type="research-article"><front><article-meta><article-id '
        'pub-id-type="pmc">{0}</article-id><title-group><article-title>Sleep {0}</article-title></title-group>'
        '<abstract><p>Sleep helps people with tumours.</p></abstract></article-meta></front><body><sec><title>Results</title><p>Ginger '
        'tea soothed forty sleepers.</p></sec></body></article>')
PUBMED = ('<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>5</PMID><Article><ArticleTitle>Tea</ArticleTitle></Article>'
          '</MedlineCitation></PubmedArticle></PubmedArticleSet>')
KINDS = {'article': (JATS.format(1), ['PMC1']),
         'set': (f'<pmc-articleset>{JATS.format(1)}{JATS.format(2)}</pmc-articleset>', ['PMC1', 'PMC2']),
         'dump of Europe PMC': (f'<articles>{JATS.format(1)}{JATS.format(2)}</articles>', ['PMC1', 'PMC2']),
         'comment first': (f'<?xml version="1.0"?>\n<!-- x --><!DOCTYPE article PUBLIC "-//NLM//DTD" "JATS.dtd">{JATS.format(1)}',
                           ['PMC1']),
         'mark first': ('\ufeff' + JATS.format(1), ['PMC1'])}


@cases('name', ['a.xml', 'a.xml.gz', 'a.nxml', 'a.nxml.gz', 'A.NXML', 'A.XML.GZ'])
@cases('kind', KINDS)
def test_jats_under_any_name(tmp_path, name, kind):
    text, ids = KINDS[kind]
    (tmp_path/name).write_bytes(gzip.compress(text.encode()) if name.lower().endswith('.gz') else text.encode())
    assert [d.id for d in documents(tmp_path/name)] == ids


def test_pubmed_is_still_pubmed(tmp_path):
    (tmp_path/'p.xml').write_text(PUBMED)
    assert [d.id for d in documents(tmp_path/'p.xml')] == ['5']


@cases('name, text, said', [
    ('a.xml', '<html/>', 'expected <PubmedArticleSet>'), ('a.nxml', PUBMED, 'read them with read_pubmed'), ('a.xml', '', 'empty'),
    ('a.nxml', 'x', 'not XML'),
    ('a.xml', '<!DOCTYPE article [<!ENTITY x "y">]><article>&x;</article>', 'entity'), ('a.pdf', 'x', '.nxml.gz'),
    ('a.nxml.gz', 'x', 'not gzip')])
def test_what_cannot_be_read_is_said_at_the_call(tmp_path, name, text, said):
    (tmp_path/name).write_text(text)
    with pytest.raises(ReadError, match=said): read_file(tmp_path/name)


def test_real_files_of_both_kinds():
    files = sorted((DATA/'pmc').glob('*.*ml'))
    if not files: pytest.skip('no real articles at hand')
    found = [d for f in files for d in read_file(f)]
    assert len(found) == 41 and all(isinstance(d, Document) for d in found)
    assert {d.source for d in found} == {'pmc', 'pmc abstract', 'pubmed'} and len({d.id for d in found}) == 41


def test_a_library_of_full_texts(tmp_path):
    (tmp_path/'set.nxml').write_text(KINDS['set'][0])
    (tmp_path/'p.xml').write_text(PUBMED)
    good('index', 'build', tmp_path/'set.nxml', tmp_path/'p.xml', '--out', tmp_path/'lib', '--no-vectors')
    found = {d.id: d for d in Library(tmp_path/'lib')}
    assert set(found) == {'PMC1', 'PMC2', '5'} and [s.label for s in found['PMC2'].sections] == ['Abstract', 'Results']
    assert found['PMC1'].article_type == 'research-article'
    (tmp_path/'bad.nxml').write_text('<article>')
    assert 'bad.nxml' in complaint(cpqa('index', 'build', tmp_path/'bad.nxml', '--out', tmp_path/'other', '--no-vectors'))


def test_a_library_of_nested_folders(tmp_path):
    "As PubMed Central ships them; a link that leads out, and a loop, bring nothing in."
    for n, name in enumerate(('articles/PMC002/b.nxml', 'articles/PMC002/a.nxml', 'articles/PMC001/deep/c.xml', 'elsewhere/d.xml'), 1):
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/name).write_text(JATS.format(n))
    (tmp_path/'articles'/'PMC001'/'out').symlink_to(tmp_path/'elsewhere')
    (tmp_path/'articles'/'PMC001'/'d.xml').symlink_to(tmp_path/'elsewhere'/'d.xml')
    (tmp_path/'articles'/'PMC001'/'loop').symlink_to(tmp_path/'articles')
    good('index', 'build', tmp_path/'articles', '--out', tmp_path/'lib', '--no-vectors', how=inside)
    good('library', 'baseline', '--files', tmp_path/'articles', '--out', tmp_path/'same', '--no-vectors', how=inside)
    assert Library(tmp_path/'lib').ids == Library(tmp_path/'same').ids == ['PMC3', 'PMC2', 'PMC1']
