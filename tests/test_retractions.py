"""What becomes of a paper belongs to it for good, whatever the order in which files are read; a notice that retracts is no evidence; and
texts that nothing could work with are cut where they enter, with a sentence that says so."""
import itertools
import json
import random
from pathlib import Path

import pytest
from conftest import cases
from helpers import inside, write_beir
from lxml import etree
from msgspec.structs import replace

from cpqa.answering.citations import cite, fault
from cpqa.answering.prompts import PROMPTS, shown
from cpqa.answering.quoting_reader import candidates
from cpqa.core.records import LONGEST_ABSTRACT, LONGEST_TITLE, Correction, Document, Evidence, Passage, Section, shortened, marked, marks
from cpqa.display import source_line
from cpqa.libraries import document_of
from cpqa.literature.entrez import read_documents
from cpqa.literature.library import build_library
from cpqa.literature.pubmed import ReadError, read_pubmed
from cpqa.literature.pubmed_writer import pubmed_xml, write_pubmed
from cpqa.passages.two_stage import title_passages
from cpqa.retrieval.dual_path import why_not


def paper(id: str, text: str = 'Tea helped adults to sleep.', links=(), **more) -> Document:
    return Document(id, title=f'Tea and sleep, part {id}.', text=text, year=2019, date='2019', languages=('eng',),
                    corrections=tuple(Correction(kind, pmid) for kind, pmid in links), **more)


def notice(id: str, kind: str, pmid: str) -> Document:
    sort = 'Retraction of Publication' if kind == 'RetractionOf' else 'Journal Article'
    return replace(paper(id, 'Tea helped adults to sleep, this paper said.', [(kind, pmid)]), publication_types=(sort,))


JATS = '''<article article-type="retraction" xmlns:xlink="http://www.w3.org/1999/xlink"><front><article-meta>
<article-id pub-id-type="pmc">PMC905</article-id><title-group><article-title>Tea and sleep, part 5</article-title></title-group>
<related-article related-article-type="retracted-article" ext-link-type="doi" xlink:href="10.1000/Tea.5"/>
<abstract><p>Tea helped adults to sleep, this paper said.</p></abstract></article-meta></front></article>'''


def files(folder: Path) -> list[Path]:
    "Seven files: papers, their older and newer versions, and notices, in each form that we read."
    old, new = dict(revised='2018-05-01'), dict(revised='2021-07-09')
    sorts = {'1old': paper('1', 'Older words.', **old), '1new': paper('1', 'Newer words.', [('RetractionIn', '901')], **new),
             '2old': paper('2', 'Older words.', [('ErratumIn', '902')], publication_types=('Retracted Publication',), **old),
             '2new': paper('2', 'Newer words.', **new), '3': paper('3'), '4': paper('4', **old), '5': paper('5', doi='10.1000/tea.5'),
             '6': paper('6', pmcid='PMC6'), '903': notice('903', 'RetractionOf', '3'), '904': notice('904', 'ExpressionOfConcernFor', '4'),
             '907': notice('907', 'ErratumFor', '4')}
    for name, some in {'a': '1old 3 2new', 'b': '903 904 1new', 'c': '2old 907 5', 'd': '4 6'}.items():
        write_pubmed([sorts[s] for s in some.split()], folder/f'{name}.xml')
    (folder/'e.nxml').write_text(JATS)
    (folder/'f.jsonl').write_text('{"_id": "PMC6", "title": "RETRACTED: Tea and sleep, part 6", "text": "Tea helped."}\n'
                                  '{"_id": "7", "text": "Tea helped.", "corrections": [{"kind": "ExpressionOfConcernIn", "pmid": "8"}]}\n')
    return sorted(folder.iterdir())


STATUS = {'1': 'retracted', '2': 'retracted', '3': 'retracted', '4': 'expression of concern', '5': 'retracted', '6': 'retracted',
          'PMC6': 'retracted', '7': 'expression of concern', '903': 'retraction notice', 'PMC905': 'retraction notice',
          '904': '', '907': ''}


def test_what_became_of_a_paper_does_not_depend_on_the_order_of_the_files(tmp_path):
    (tmp_path/'files').mkdir()
    given = files(tmp_path/'files')
    orders = random.Random(3).sample([*itertools.permutations(given)], 5)
    held = []
    for order in (given, given[::-1], *orders):
        library = build_library(order, tmp_path/'library')
        held.append({d.id: d for d in library})
        assert library.manifest.counts == {'documents': 12, 'replaced': 2, 'deleted': 0, 'skipped': 0} and len(library) == 12
        assert library.ids == [d.id for d in library] and set(library.ids) == set(held[0])
    assert {id: d.status for id, d in held[0].items()} == STATUS
    assert [held[0][id].text for id in '12'] == ['Newer words.'] * 2
    assert all(h == held[0] for h in held)


def test_a_record_without_a_date_replaces_the_one_before_and_stays_retracted(tmp_path):
    library = build_library([[paper('1', 'First.', [('RetractionIn', '9')]), paper('1', 'Second.')]], tmp_path/'library')
    assert (library.get('1').text, library.get('1').status) == ('Second.', 'retracted')


@cases('given', [dict(publication_types=['Retraction of Publication']), dict(publication_types=['Retraction Notice']),
                 dict(corrections=[{'kind': 'RetractionOf', 'pmid': '1'}]), dict(title='Retraction: Tea and sleep.'),
                 dict(title='Retraction Note to: Tea and sleep'), dict(title='Notice of Retraction: Tea'), dict(title='[Retraction] Tea'),
                 dict(title='Tea and sleep [Retraction].'), dict(article_type='retraction'), dict(title='RETRACTED ARTICLE: Tea'),
                 dict(publication_types=['Retracted Publication']), dict(corrections=[{'kind': 'RetractedandRepublishedIn', 'pmid': '1'}])])
def test_neither_a_notice_nor_a_retracted_paper_is_evidence(given):
    d = document_of({'id': '1', 'title': 'Tea and sleep', 'text': 'Tea helped adults to sleep.'} | given)
    sound = Document('1', 'Tea and sleep', 'Tea helped adults to sleep.')
    evidence = [Evidence(Passage.of(d, 0, len(d.text)), 0.9)]
    assert d.void in ('retracted', 'retraction notice') and why_not(d) == d.void and why_not(sound) == ''
    assert len(candidates(evidence, {'1': sound})) == 1 and candidates(evidence, {'1': d}) == []
    assert title_passages([d], []) == [] and len(title_passages([sound], [])) == 1
    assert shown(PROMPTS['passages'], evidence, {'1': d}) == ([], 1)
    assert fault(cite(sound, (0, 27), 0.9), {'1': sound}) is None and fault(cite(sound, (0, 27), 0.9), {'1': d}).kind == d.void


@cases('title', ['Retraction of the nipple as a sign of cancer.', 'Brain retraction: a review.', 'Retracted bladder after birth.',
                 'Retractions in oncology: a survey.', 'Tea and sleep.'])
def test_a_paper_about_retraction_is_a_paper(title): assert Document('1', title).status == ''


def test_search_and_sources_say_what_became_of_a_paper(tmp_path):
    library = build_library([[paper('1', links=[('RetractionIn', '9')]), paper('2'), paper('4', links=[('ErratumIn', '9')]),
                              notice('9', 'RetractionOf', '1')]], tmp_path/'library')
    said = inside('search', 'tea', '--library', tmp_path/'library', '--retriever', 'bm25').stdout
    marked = {line.split()[1]: line[line.index('2019') + 6:] for line in said.splitlines()}
    assert marked == {'1': '[retracted] Tea and sleep, part 1.', '2': 'Tea and sleep, part 2.', '4': '[corrected] Tea and sleep, part 4.',
                      '9': '[retraction notice] Tea and sleep, part 9.'}
    hits = json.loads(inside('search', 'tea', '--library', tmp_path/'library', '--retriever', 'bm25', '--json').stdout)
    assert {h['id']: h['status'] for h in hits} == {'1': 'retracted', '2': '', '4': 'corrected', '9': 'retraction notice'}
    doubted, sound = (cite(library.get(id), (0, 27), 0.9) for id in '42')
    assert doubted.to_dict()['status'] == 'corrected' and source_line(doubted).endswith('PMID 4 (corrected)')
    assert source_line(sound).endswith('PMID 2')


def test_marks_are_given_once_and_in_any_order():
    found = [m for d in (notice('9', 'RetractionOf', '1'), paper('1', links=[('ErratumIn', '')]), paper('1', links=[('ErratumIn', '8')]),
                         paper('1', publication_types=('Retracted Publication',))) for name, m in marks(d) if name == '1']
    given = {marked(paper('1'), order) for order in itertools.permutations(found)}
    assert len(given) == 1 and given.pop().corrections == (Correction('ErratumIn', '8'), Correction('RetractionIn', '9'))


# ---- texts that are too long

def test_a_build_keeps_the_beginning_of_a_long_text_and_says_so(tmp_path):
    long = paper('5', 'Tea helped many adults. ' * 200_000, sections=(Section('ALL', 0, 4_800_000),))
    dashes, blanks = paper('6', 'Tea' + '-' * 60_000 + 'helped.'), paper('7', 'Tea' + '\n' * 80_000 + 'helped.')
    library = build_library([[long, dashes, blanks, paper('8'), replace(paper('9'), title='T ' * 4500)]], tmp_path/'library')
    assert library.manifest.counts == {'documents': 5, 'replaced': 0, 'deleted': 0, 'skipped': 0, 'shortened': 4}
    assert library.manifest.skipped[0] == 'part of the text of 5, which has 4,800,000 characters: 99,942 are kept'
    held = library.get('5')
    assert len(held.text) <= LONGEST_ABSTRACT and held.text.startswith('Tea helped') and held.sections[0].end <= len(held.text)
    assert held.text.splitlines()[-1] == '(4,700,102 further characters are left out)'
    assert [library.get(id).text for id in '678'] == ['Tea' + '-' * 100 + 'helped.', 'Tea' + '\n' * 100 + 'helped.', paper('8').text]
    assert len(library.get('9').title) == LONGEST_TITLE and all(shortened(d) is d for d in library)


def test_the_command_line_names_what_was_cut(tmp_path):
    source = write_beir(tmp_path/'a.jsonl', [Document('1', 'Tea', 'word ' * 120_000), Document('2', 'Tea', 'Tea helped.')])
    done = inside('index', 'build', source, '--out', tmp_path/'library', '--no-vectors', '--strict')
    assert done.returncode == 0 and done.stdout.startswith('2 documents')
    assert done.stderr.splitlines() == ['cpqa: left out part of the text of 1, which has 600,000 characters: 499,941 are kept']


def test_what_comes_live_is_bounded_too():
    long = etree.tostring(pubmed_xml(paper('5', 'Tea helped. ' * 300_000)), encoding='utf-8')
    (_, _, d), = read_documents([('5', long)], 'pubmed')
    assert len(d.text) <= LONGEST_ABSTRACT and d.text.endswith('further characters are left out)')


def test_an_error_of_ncbi_is_told_in_few_words(tmp_path):
    (tmp_path/'a.xml').write_text(f'<PubmedArticleSet><ERROR>{"-" * 19_900}</ERROR></PubmedArticleSet>')
    with pytest.raises(ReadError, match='comes an error of NCBI') as e: list(read_pubmed(tmp_path/'a.xml'))
    assert len(str(e.value)) < 600
