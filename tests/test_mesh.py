"""MeSH in the layouts that NLM documents, what is wrong in files, and the tree."""
import gzip
import re
from itertools import islice

import pytest

from conftest import cases
from cpqa.core.errors import CpqaError
from cpqa.literature.mesh import Descriptor, MeshTree, natural, read_mesh
from cpqa.literature.pubmed import ReadError


# ---- files

def xml_record(ui: str, name: str, trees=(), terms=()) -> str:
    numbers = ''.join(f'<TreeNumber>{t}</TreeNumber>' for t in trees)
    strings = ''.join(f'<Term><TermUI>T1</TermUI><String>{t}</String></Term>' for t in (name, *terms))
    return (
        f'<DescriptorRecord DescriptorClass="1"><DescriptorUI>{ui}</DescriptorUI><DescriptorName><String>{name}</String></DescriptorName>'
        '<AllowableQualifiersList><AllowableQualifier><QualifierReferredTo><QualifierUI>Q1</QualifierUI>'
        '<QualifierName><String>therapy</String>'
        '</QualifierName></QualifierReferredTo></AllowableQualifier></AllowableQualifiersList>'
        '<SeeRelatedList><SeeRelatedDescriptor><DescriptorReferredTo><DescriptorUI>D999999</DescriptorUI>'
        '<DescriptorName><String>Elsewhere</String>'
        f'</DescriptorName></DescriptorReferredTo></SeeRelatedDescriptor></SeeRelatedList><TreeNumberList>{numbers}</TreeNumberList>'
        '<ConceptList><Concept PreferredConceptYN="Y"><ConceptUI>M1</ConceptUI>'
        f'<TermList>{strings}</TermList></Concept></ConceptList></DescriptorRecord>'
    )


def xml(*records: str, before: str = '') -> bytes:
    return f'<?xml version="1.0"?>\n{before}<DescriptorRecordSet LanguageCode="eng">{"".join(records)}</DescriptorRecordSet>\n'.encode()


def ascii_record(ui: str, name: str, trees=(), terms=()) -> str:
    lines = ['*NEWRECORD', 'RECTYPE = D', f'MH = {name}',
             *(f'{"PRINT " * (i == 0)}ENTRY = {t}|T1|NON|EQV|UNK (19XX)|abbcdef' for i, t in enumerate(terms)),
             *(f'MN = {t}' for t in trees), 'MS = A note = with signs.', f'UI = {ui}']
    return '\n'.join(lines) + '\n\n'


ROWS = [('D000001', 'Growths', ('C04',), ('Lumps', 'Growths, Bad')), ('D000002', 'Growths, Knee', ('C04.588.111', 'C05.222'), ()),
        ('D000000003', 'Growths, Left Knee', ('C04.588.111.500',), ('Sinistral Growth & Co',)), ('D000004', 'Elbows', ('A01.378',), ())]
WANTED = [Descriptor(*r) for r in ROWS]
XML = xml(*(xml_record(u, n, t, [x.replace('&', '&amp;') for x in e]) for u, n, t, e in ROWS))
ASCII = ''.join(ascii_record(*r) for r in ROWS).encode()


@cases('packed', [False, True])
@cases('data', [XML, ASCII, b'\xef\xbb\xbf' + XML])
def test_reads_both_layouts(tmp_path, data, packed):
    path = tmp_path/('mesh.gz' if packed else 'mesh')
    path.write_bytes(gzip.compress(data) if packed else data)
    assert list(read_mesh(path)) == WANTED and list(read_mesh(str(path))) == WANTED


def test_reads_as_it_goes(tmp_path):
    "The first records come out before the file's end is seen, which here is missing."
    path = tmp_path/'desc.xml'
    path.write_bytes(xml(*(xml_record(f'D{i:06}', f'Name {i}') for i in range(5000)))[:-3000])
    assert [d.ui for d in islice(read_mesh(path), 3)] == ['D000000', 'D000001', 'D000002']
    with pytest.raises(ReadError, match='cut off or broken, after 49.. records'): list(read_mesh(path))


def test_bad_records_are_named(tmp_path):
    (tmp_path/'a.xml').write_bytes(xml(xml_record('', 'No number'), xml_record('D000001', ''), xml_record('D000002', 'Fine'),
                                       xml_record('D000003', 'Odd', ['C4'])))
    (tmp_path/'a.bin').write_bytes(b'*NEWRECORD\nRECTYPE = D\nMH = Na\xefve\nUI = D000009\n\n' + ASCII
                                   + b'*NEWRECORD\nRECTYPE = D\nUI = D000008\n')
    (tmp_path/'a.csv').write_text('mesh_id,mesh_name,tree_number\nD000001,One,C04\nD000001,Two,C05\nD000002\n\nD000003,Three,C04.1\n')
    for name, good, why in (('a.xml', 1, ['number', 'no name', 'tree number']), ('a.bin', 4, ['UTF-8', 'no name']),
                            ('a.csv', 1, ['is called', 'no name', 'tree number'])):
        tree = MeshTree(read_mesh(tmp_path/name))
        assert len(tree) == good and len(tree.skipped) == len(why), tree.skipped
        assert all(s.where.startswith(name) and w in s.why for s, w in zip(tree.skipped, why))


BOMB = '<!DOCTYPE DescriptorRecordSet [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE DescriptorRecordSet [<!ENTITY a SYSTEM "file:///etc/hostname">]>'


@cases('data, says', [
    (b'', 'empty'), (b'\n\n', 'empty'), (b'Cancer is a crab.', 'no list of diseases'), (b'{"ui": 1}', 'no list of diseases'),
    (b'version https://git-lfs.github.com/spec/v1\noid sha256:0\n', 'git lfs pull'), (b'PK\x03\x04zip', 'unpack it'),
    (gzip.compress(XML, mtime=0), 'add .gz'), (XML.decode().encode('utf-16'), 'UTF-16'), (XML[:-100], 'cut off or broken'),
    (b'<PubmedArticleSet/>', 'these are articles'), (b'<SupplementalRecordSet/>', 'supplementary'), (b'<other/>', 'DescriptorRecordSet'),
    (xml(xml_record('D000001', '&b;'), before=BOMB), 'declares the entity'),
    (xml(xml_record('D000001', '&a;'), before=OUTSIDE), 'declares the entity'),
    (ASCII[:-20], 'cut off'), (b'*NEWRECORD\nRECTYPE = Q\nSH = therapy\nUI = Q000628\n', "type 'Q'"),
    (b'*NEWRECORD\nRECTYPE = C\nNM = x\nUI = C1\n', "type 'C'"),
    (b'mesh_id,mesh_name,tree_number\nD000001,Na\xefve,C04\n', 'cannot be read on'),
])
def test_refuses(tmp_path, data, says):
    path = tmp_path/'file'
    path.write_bytes(data)
    with pytest.raises(ReadError, match=re.escape(says)) as e: list(read_mesh(path))
    assert str(e.value).startswith(str(path)) and '\n' not in str(e.value)


@pytest.mark.parametrize('data', [XML, ASCII])
def test_refuses_damaged_gzip(tmp_path, data):
    path, packed = tmp_path/'mesh.gz', gzip.compress(data)
    for wrong in (packed[:-9], packed[:30] + b'\0\0' + packed[32:], data):
        path.write_bytes(wrong)
        with pytest.raises(ReadError): list(read_mesh(path))
    with pytest.raises(ReadError, match='no such file'): read_mesh(tmp_path/'none')
    with pytest.raises(ReadError, match='directory'): read_mesh(tmp_path)


def test_undefined_entity_is_no_text(tmp_path):
    (tmp_path/'a.xml').write_bytes(xml(xml_record('D000001', 'Growths &odd;'), xml_record('D000002', 'Fine')))
    with pytest.raises(ReadError, match='broken'): list(read_mesh(tmp_path/'a.xml'))


# ---- the tree

def test_explodes_whole_steps_only():
    tree = MeshTree(WANTED)
    assert [d.ui for d in tree.explode('C04.588.111')] == ['D000002', 'D000000003']
    assert [d.ui for d in tree.explode('Knee Growths')] == ['D000002', 'D000000003'] == [d.ui for d in tree.explode('D000002')]
    assert [d.ui for d in tree.explode('bad growths')] == ['D000001', 'D000002', 'D000000003']
    assert tree.explode('C04.999') == []
    siblings = MeshTree([Descriptor('D000001', 'A', ('C04.100',)), Descriptor('D000002', 'B', ('C04.100.200',)),
                         Descriptor('D000003', 'C', ('C04.100.200.300', 'C05'))])
    assert [d.name for d in siblings.explode('C04.100.200')] == ['B', 'C'] and [d.name for d in siblings.explode('C')] == ['C']
    with pytest.raises(CpqaError, match='Knees'): tree.explode('Knees')


def test_turns_names_round():
    assert natural('Leukemia, Lymphocytic, Chronic, B-Cell') == 'B-Cell Chronic Lymphocytic Leukemia' and natural('Glioma') == 'Glioma'
