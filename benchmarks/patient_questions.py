"""What does a patient get for questions in a patient's words, and is it any use?

    python benchmarks/patient_questions.py answers OUT [LIBRARY]   (the screens, for somebody to grade; without LIBRARY the demo notes;
                                                                    with one, the questions whose ids begin with v or r)
    python benchmarks/patient_questions.py grades                  (what the grades in benchmarks/labels/patient_grades.tsv come to)

The questions (benchmarks/labels/patient_questions.tsv) were written by language-model sessions that had not seen the system. From those of
the part `fit` weights and the answer network are learnt (quote_weights.py, train_selection.py); those of the part `test` are asked here.
240 that were asked for testing until November 25 (q..., u..., d...) are learnt from since, and so are 340 more (h...); in their place stand
99 (w...), those near to any that is learnt from left out (cosine above .85). `demo, November 26` are these 99: they were graded where a
sentence was quoted from .4 on; that .5 is wanted was decided then, from what the learnt ones show when left out; 11 screens that
changed were graded again by another session, 14 answers are withheld. `demo` and `demo, November 25` are readers before.
Questions for whole papers (254 f... to learn from, of which 124 were graded by sentences, and 123 v... to
test) were written for 329 full texts on cancer by somebody who had read the paper in their column (207 and 99), or freely, as helplines are
asked; they are asked of a library of these texts and of 4,145 abstracts of trials on anything. No paper is the source of questions in
both parts. `rct, reader before` is the reader of that morning on the very same passages, graded by other sessions. 30 further
ones (d...) for the demo notes and 40 (r...) for the 329 full texts alone are of November 25, and graded as the reader was that evening.
`full texts, November 26` are the same 40 with the network of that day: two screens changed, and were graded again.
`full texts, taught` are they once more, all graded anew, with the network that learnt from a larger one.
`demo, common questions` are 120 (y..., z...) of what patients ask most, written and graded after the answer network had learnt from a
larger one, by sessions that knew neither; z... are the 28 that are near to one that is learnt from (cosine above .85), as common
questions are. `demo, common questions, before` are the same with the network and the weights before.
`demo, common questions, taught again` are they with the network that also learnt from what it had wrongly taken for answers: the first
quotes of 24 screens changed, and of these 16 that answer were graded again. `demo, other common questions` are 120 more (a...), written and
graded likewise, asked of that network. Four other sessions searched all notes for a sentence that answers each (answerable.tsv: 2 answers
it or its main part, 1 is of real use, 0 none), so that what is refused can be told from what is not there.
`demo, further questions` are the last 120 (b...), written by a session that knew neither the reader nor the other questions, and asked when
misspelled words were corrected, 25 passages read, and the network had learnt anew; `before` is the reader of that morning on the same.
Three sessions graded the screens of both in one shuffled row, and did not know that there were two; four searched the notes.
`demo, with 797 notes more` are 120 more (c...), written like them, asked when 797 notes had been written and each read against its
source by another session, notes on the kind of a medicine were let through, and of a trial its background was not; `demo, before these
notes` is the reader of that morning on the same questions. Graded and searched as before, the notes searched with the new ones among
them. Seven of the new notes were withdrawn afterwards, one because it was quoted in answer to another question (c118).
`demo, taught with stories` are 120 more (d...), a third of them with a person's story around the question, asked when the answer network
had learnt from stories; `demo, before these stories` is the reader of that morning. Graded and searched likewise. With these grades in
view notes were quoted from .55 on, not .5, five sentences were mended or withdrawn, and the 56 that had been answered were asked again:
five are refused since, and the nine whose quotes changed were graded again by another session, beside four that had not changed: the first
quotes of the nine got the grades that they had, and d001 is no longer called dangerous. What searchers had found for a..., b... and c...
is learnt from since (answer_grades.tsv), so they test this network no longer.
`fresh questions` are 72 (g...) of November 27, a third of them as typed into a search box and a third long messages, written by a session
that knew nothing, put to the notes and to the 329 full texts, where little of what they ask stands; `rct, November 27` are 100 of v...,
asked of abstracts and whole papers; each with the reader of that evening and the one before. Of these the first quotes alone were graded,
all in one shuffled row.
`demo, November 27` are those 72 and 60 more (of k..., m..., n...; the other 570 of these are learnt from), by three sessions, with the
reader of that evening; `demo, before November 27` with the one of the morning; `rct, November 27, evening` and `rct, November 27, graded
again` are the 100 of v... with both. First quotes alone, of all readers in one shuffled row, by two sessions and a third for ten; of twelve
graded twice all agreed.
`demo, November 27, night` are these 132, of which the first quotes are the same but for two that are declined now
(k066, on another gene; n077, on another medicine),
and 60 more (j...) by a session that knew nothing, the first quotes graded by one and read again by another (48 of 50 alike), and one that
came later by a third. With the reader of that night the first quotes to the 100 of v... are those of the evening.
`..., third grader` and `..., fourth grader` are the same 75 first quotes, read once more by two sessions among 90 sentences that were
refused, in one shuffled row: they agree on 154 of the 165, and are stricter than the graders before them.
`demo, November 27, late` are 60 more (x...) of what is asked most, by a session that knew nothing, put to the reader of the following
evening when 66 notes had been written for other questions; two sessions read the screens, thirty each. Of six first quotes that one of them
called dangerous four stood in notes that were mended afterwards, and for one of these the words on a new sign were learnt.
`demo, November 29` are 60 more (o...) of what is asked most, by a session that knew nothing, put to the reader of that night when 235
notes had been written for other questions and 124 mended, and `demo, November 29, messages` 16 messages and 16 short ones beside them
(p..., s...), of which 8 get words for an emergency and count as not answered; one session read the screens. `..., second grader` are the
first quotes to o... alone, of that reader and of `demo, before November 29`, the one of the morning, in one shuffled row, by a stricter
one. Seven sentences that the first had called dangerous or senseless were mended afterwards.
`demo, November 29, fresh messages` are 40 messages (e...) by a session that knew nothing, some with a danger in them, put to the same
reader, and `words picked` a network that asked the words of the message that it took for the question's, which is not built in; two
sessions read the screens of both in one shuffled row.
`demo, messages, known questions` are 60 messages (l...) by a session that knew nothing, eight with a danger in them that the writer plays
down, put to the reader with the known questions, and to the danger and situation networks of that day; twelve get the words for a danger,
four of them wrongly, and count as not answered; one session read the screens. Bars of the danger network were moved after these messages
had been read (safety.ipynb says how).
`demo, notes read and judged` are 120 of what is asked most (as...) by a session that knew nothing, put to the reader of the afternoon of
November 29, with 638 notes on pages that were read that day and the votes of known questions; `..., second grader` is a stricter session
on the same screens, `before ...` the reader and the notes of that morning on 119 of the same questions, by other sessions, `full texts,
November 29` are 20 (au...) put to 329 whole papers, and `..., messages` 40 messages (at...), four with a danger that is played down; six
get the words for a danger, two of them wrongly, and count as not answered. What is suggested beside a refusal was changed after the
screens had been read: it names no cancer and no medicine that the question does not; and a vote got its floor.
`demo, questions written for sentences` are 120 more of what is asked most (av...) by a session that knew nothing, put to the reader of
that evening, with 517 notes more and the notes that written questions bring; two sessions read sixty screens each. av026, refused and then
answered in a shorter form, counts as answered.
Of d..., q..., u..., w..., y... and z... too is learnt what searchers found for those that had not been answered (answer_grades.tsv).
Each screen was graded by another session, which saw the screens alone. None of them were patients or doctors.

The rubric, for a frightened person without medical training. `answered`: 0 for a refusal. `first`: the first quote 2 answers the question
or its main part; 1 does not answer fully, but is on the subject and useful to the person; 0 is beside the point, useless, or about another
thing. `any`: the best of the quotes. `wrong_label`: a yes, no or maybe is shown and is wrong, misleading, or not what the quotes say.
`dangerous`: somebody could come to harm by believing it. Of a message with two questions the better answer counts.
"""
import csv
import sys
from pathlib import Path

from common import ROOT, save

from cpqa import CancerQA
from cpqa.evaluation.statistics import wilson

GRADED = ('demo: the reader of 2026-11-24, before names were found in all their forms; rct: 4,145 abstracts and 329 whole papers, with '
          'weights of their own; bioasq: a reader before; November 25 and 26: the readers of these evenings')
LABELS = ROOT / 'benchmarks' / 'labels'
SEARCHED = ('demo, other common questions', 'demo, further questions', 'demo, further questions, before', 'demo, with 797 notes more',
            'demo, before these notes', 'demo, taught with stories', 'demo, before these stories')   # in answerable.tsv


def table(name: str) -> list[dict]:
    with open(LABELS / name, newline='', encoding='utf-8') as f: return list(csv.DictReader(f, delimiter='\t', quoting=csv.QUOTE_NONE))


def screens(out: Path, library: str | None):
    qa = CancerQA(library)
    with open(out, 'w', encoding='utf-8') as f:
        for row in table('patient_questions.tsv'):
            if row['part'] != 'test' or (row['id'][0] in 'vr') != bool(library): continue
            f.write(f"\n=================== {row['id']}\n{qa.ask(row['question'])}\n")


def share(k: int, n: int) -> dict | None:
    if not n: return None
    found = wilson(k, n)
    return {'value': round(found.value, 4), 'interval': [round(found.low, 4), round(found.high, 4)], 'n': n}


def summary(rows: list[dict]) -> dict:
    answered = [r for r in rows if r['answered'] == '1']
    useful = lambda column: sum(r[column] in ('1', '2') for r in answered)
    all_read = [r for r in answered if r['any'] != '-']   # of some sets the first quotes alone were graded
    return {'questions': len(rows), 'answered': share(len(answered), len(rows)),
            'first quote useful, of those answered': share(useful('first'), len(answered)),
            'any quote useful, of those answered': share(useful('any'), len(all_read)),
            'answered usefully, of all questions': share(useful('first'), len(rows)),
            'first quote answers': sum(r['first'] == '2' for r in answered),
            'wrong labels': sum(r['wrong_label'] == '1' for r in rows), 'dangerous': sum(r['dangerous'] == '1' for r in rows)}


def answerable(rows: list[dict]) -> dict:
    "Of the questions to which the notes hold an answer, or something of use, or nothing: how many are answered usefully."
    asked, of_use, of_grade = {r['id'] for r in rows}, {r['id'] for r in rows if r['first'] in ('1', '2')}, {}
    for r in table('answerable.tsv'): of_grade.setdefault(r['grade'], set()).update({r['id']} & asked)
    sets = {'an answer is there': of_grade['2'], 'something of use is there': of_grade['1'] | of_grade['2'],
            'nothing is there': of_grade['0']}
    return {name: share(len(of_use & ids), len(ids)) for name, ids in sets.items()}


def main(words: list[str]):
    if words[:1] == ['answers'] and len(words) in (2, 3): return screens(Path(words[1]), words[2] if len(words) == 3 else None)
    if words != ['grades']: sys.exit(__doc__)
    rows = table('patient_grades.tsv')
    save('patient_questions', {'graded': GRADED,
                               'grader': 'a language-model session, blind to the system; a second reader where its name says so',
                               'libraries': {name: summary([r for r in rows if r['library'] == name])
                                             for name in dict.fromkeys(r['library'] for r in rows)},
                               'answered usefully, by what the notes hold': {
                                   name: answerable([r for r in rows if r['library'] == name]) for name in SEARCHED}})


if __name__ == '__main__': main(sys.argv[1:])
