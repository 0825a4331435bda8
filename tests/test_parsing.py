"""What models write, in our own words, and what they really wrote: every text is read, and MIRAGE's published table comes out again."""
import csv
import gzip
import json
from collections import Counter

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.errors import CpqaError
from cpqa.evaluation.parsing import DECLINING_KINDS, FAILURES, POLICIES, ANSWER_RULES, AnswerReading, apply_policy, read_answer
from cpqa.evaluation.collections import YES_NO, YES_NO_MAYBE, Question

DRUGS = {'A': 'Tamoxifen', 'B': 'Vitamin D', 'C': 'Anastrozole and zinc', 'D': 'A low dose of aspirin'}
DOSES = {'A': '0.5 mg', 'B': '5 mg', 'C': '-5 mg', 'D': '50 mg'}
NONES = {'A': 'Lung', 'B': 'Liver', 'C': 'All of the above', 'D': 'None of these'}
BLOOD = {'A': 'O', 'B': 'A', 'C': 'B', 'D': 'AB'}
BUGS = {'A': 'E. coli', 'B': 'Clostridium difficile', 'C': 'S. aureus', 'D': 'B. fragilis'}

CASES = [   # text, options, the label or the kind of failure
    # JSON and what comes near it
    ('{"thoughts": "A is tempting.", "answer_choice": "B"}', DRUGS, 'B'),
    ('{"answer_choice": "B", "thoughts": "The answer is A."}', DRUGS, 'B'),
    ('```json\n{"answer": "b"}\n```', DRUGS, 'B'),
    ('Sure! Here you go:\n```\n{"Answer": "B. Vitamin D"}\n```\nAsk me again if A is unclear.', DRUGS, 'B'),
    ('I thought {aloud} and then {"final_answer": "(B)"} came out', DRUGS, 'B'),
    ('{"answer": "A"} On reflection: {"answer": "B"}', DRUGS, 'B'),
    ("{'thoughts': 'it's bone', 'answer': 'B'}", DRUGS, 'B'),
    ("{'answer_choice': 'B. Vitamin D'}", DRUGS, 'B'),
    ('{"thoughts": "she said "no" to A", "answer_choice": "B"', DRUGS, 'B'),
    ('{"thoughts": "bones." "answer_choice": "B"}', DRUGS, 'B'),
    ('{answer: B}', DRUGS, 'B'),
    ('{"answer" "B"}', DRUGS, 'B'),
    ('{"answer": ["B"]}', DRUGS, 'B'),
    ('{"answer": ["A", "B"]}', DRUGS, 'several'),
    ('{"answer": {"letter": "B", "why": "A is wrong"}}', DRUGS, 'B'),
    ('{"answer": {"B": "Vitamin D"}}', DRUGS, 'B'),
    ('{"answer": true}', YES_NO, 'A'),
    ('{"answer": null, "thoughts": "Let us look at each."}', DRUGS, 'unfinished'),
    ('{"thoughts": "The notes are silent. I cannot answer this.", "answer_choice": ""}', DRUGS, 'refused'),
    ('{"thoughts": "First, option A is', DRUGS, 'unfinished'),
    ('{"thoughts": "Bones need it. Answer: B"}', DRUGS, 'B'),
    ('{"thoughts": "All is open."}', DRUGS, 'unfinished'),
    ('{"answer_choice": "A/B/C/D"}', DRUGS, 'several'),
    ('{"answer_choice": "Iron"}', DRUGS, 'unknown option'),
    ('{"error": {"code": 500, "message": "something broke"}}', DRUGS, 'api error'),
    # letters, alone and with a text
    ('B', DRUGS, 'B'), ('b.', DRUGS, 'B'), ('(B)', DRUGS, 'B'), ('[B]', DRUGS, 'B'), ('**B**', DRUGS, 'B'), ('Option B', DRUGS, 'B'),
    ('Answer: (b)', DRUGS, 'B'),
    ('B. Vitamin D', DRUGS, 'B'), ('B) vitamin d', DRUGS, 'B'), ('B: Vitamin D.', DRUGS, 'B'), ('B - Vitamin D', DRUGS, 'B'),
    ('B Vitamin D', DRUGS, 'B'),
    ('B, since bones need it', DRUGS, 'B'), ('B. Vitmain D', DRUGS, 'B'), ('E', DRUGS, 'unknown option'),
    ('F. Surgery', DRUGS, 'unknown option'),
    ('B. Tamoxifen', DRUGS, 'several'), ('B. None of the above', DRUGS, 'several'), ('E. None of the above', DRUGS, 'none of the options'),
    ('A', BLOOD, 'A'), ('AB', BLOOD, 'D'), ('B. A', BLOOD, 'B'), ('2', {'1': 'yes', '2': 'no'}, '2'),
    ('(2) no', {'1': 'yes', '2': 'no'}, '2'),
    # texts without a letter
    ('Vitamin D', DRUGS, 'B'), ('VITAMIN D.', DRUGS, 'B'), ('A low dose of aspirin', DRUGS, 'D'), ('anastrozole and zinc', DRUGS, 'C'),
    ('Vitamin D, because bones need it', DRUGS, 'B'), ('5 mg', DOSES, 'B'), ('0.5 mg', DOSES, 'A'), ('-5 mg', DOSES, 'C'),
    ('500 mg', DOSES, 'unreadable'),
    ('E. coli', BUGS, 'A'), ('B. fragilis', BUGS, 'D'), ('S. aureus', BUGS, 'C'),
    # sentences
    ('The answer is (B).', DRUGS, 'B'), ('The correct answer is B: Vitamin D.', DRUGS, 'B'),
    ('the best answer would be vitamin D.', DRUGS, 'B'),
    ('A and C are too weak. Therefore, option B is correct.', DRUGS, 'B'), ('A is wrong, D is wrong.\n\nFinal answer: B', DRUGS, 'B'),
    ('Let me think. Option A: too early. Option C: too late.\n**B. Vitamin D**', DRUGS, 'B'), (r'So \boxed{B} it is', DRUGS, 'B'),
    ('At first the answer is A, but the trial failed. So the answer is B.', DRUGS, 'B'),
    ('The answer is not A. The answer is B.', DRUGS, 'B'),
    ('I would choose B.', DRUGS, 'B'), ('The answer is a low dose of aspirin.', DRUGS, 'D'), ('The answer is B or C.', DRUGS, 'several'),
    ('A patient who asks may be told much.', DRUGS, 'unreadable'), ('Vitamin A is the best choice for eyes.', DRUGS, 'unreadable'),
    ('A good question!', DRUGS, 'unreadable'), ('B cells make antibodies.', DRUGS, 'unreadable'),
    # several
    ('B or C', DRUGS, 'several'), ('A and B', DRUGS, 'several'), ('Both A and B', DRUGS, 'several'), ('A, B, and D', DRUGS, 'several'),
    ('(A) & (B)', DRUGS, 'several'),
    ('A. Tamoxifen, B. Vitamin D', DRUGS, 'several'), ('Either B. Vitamin D or A. Tamoxifen', DRUGS, 'several'),
    ('Tamoxifen and Vitamin D', DRUGS, 'several'),
    ('All of the above', DRUGS, 'several'), ('All of the above.', NONES, 'C'), ('C. All of the above', NONES, 'C'),
    # yes, no and maybe
    ('Yes', YES_NO, 'A'), ('Yes.', YES_NO, 'A'), ('NO!', YES_NO, 'B'), ('No, it does not.', YES_NO, 'B'), ('B. no', YES_NO, 'B'),
    ('maybe', YES_NO_MAYBE, 'C'),
    ('The answer is yes.', YES_NO, 'A'), ('{"answer": "Yes, it does"}', YES_NO, 'A'),
    ('It is inconclusive. Answer: maybe', YES_NO_MAYBE, 'C'),
    ('Yes or no', YES_NO, 'several'), ('maybe', YES_NO, 'unreadable'), ('No evidence was found that it helps.', YES_NO, 'unreadable'),
    # abstentions
    ('None of the above', DRUGS, 'none of the options'), ('None', DRUGS, 'none of the options'), ('None of the above', NONES, 'D'),
    ('None of these.', NONES, 'D'),
    ('Not listed among the choices', DRUGS, 'none of the options'), ('The answer is none of the above.', DRUGS, 'none of the options'),
    ('I cannot answer this question.', DRUGS, 'refused'), ("I'm sorry, but I can't help with that.", DRUGS, 'refused'),
    ('It cannot be determined.', DRUGS, 'refused'),
    ('Information not available in the provided documents', DRUGS, 'refused'), ('N/A', DRUGS, 'refused'),
    ('Insufficient data', DRUGS, 'refused'),
    ('The notes do not mention it, so I am unable to decide.', DRUGS, 'refused'), ('The question is incomplete.', DRUGS, 'refused'),
    ('Unknown', YES_NO, 'refused'),
    # machines
    ("'content'", DRUGS, 'api error'), ("KeyError: 'content'", DRUGS, 'api error'),
    ('The response was filtered due to a content management policy.', DRUGS, 'api error'),
    ("('Connection aborted.', ConnectionResetError(104))", DRUGS, 'api error'), ('Rate limit reached for requests', DRUGS, 'api error'),
    ('Error code: 429 - too many tokens', DRUGS, 'api error'), ('Request timed out.', DRUGS, 'api error'),
    ('503 Service Unavailable', DRUGS, 'api error'),
    # nothing, and nothing to be read
    ('', DRUGS, 'empty'), (' \n\t', DRUGS, 'empty'), (None, DRUGS, 'empty'), ('The weather is fine.', DRUGS, 'unreadable'),
    ('???', DRUGS, 'unreadable'), ('{}', DRUGS, 'unfinished'),
    # a second table, written before the rules had seen it: of its 68 texts 49 were then read as they should, and one got a wrong label
    ('Based on the evidence, I believe the answer is B) Vitamin D.', DRUGS, 'B'),
    ('<answer>B</answer>', DRUGS, 'B'),
    ('### Answer\nB', DRUGS, 'B'),
    ('Answer:\n\n(B) Vitamin D', DRUGS, 'B'),
    ('**Answer: B. Vitamin D**\n\nExplanation: Tamoxifen (A) is not for bones. Aspirin (D) is a pain killer.', DRUGS, 'B'),
    ('B\n\nExplanation: A is not right since the trial failed.', DRUGS, 'B'),
    ('My choice is option B.', DRUGS, 'B'),
    ('B is correct.', DRUGS, 'B'),
    ('It is B.', DRUGS, 'B'),
    ('Correct: B', DRUGS, 'B'),
    ('The most appropriate treatment is Vitamin D.', DRUGS, 'B'),
    ('Choice B', DRUGS, 'B'),
    ('The answer: B', DRUGS, 'B'),
    ('answer = B', DRUGS, 'B'),
    ('{"answer": "B", "confidence": 0.9}', DRUGS, 'B'),
    ('{"result": {"answer": "B"}}', DRUGS, 'B'),
    ('[{"answer": "B"}]', DRUGS, 'B'),
    ('["B"]', DRUGS, 'B'),
    ('"B"', DRUGS, 'B'),
    ('{"answer_choice": B}', DRUGS, 'B'),
    ('{"answer_choice": "B"', DRUGS, 'B'),
    ('{"answer_choice": "B. Vitamin D', DRUGS, 'B'),
    ('{"thoughts": "x", "answer_choice": "B"}}', DRUGS, 'B'),
    ('<think>A looks right. The answer is A.</think>\nB', DRUGS, 'B'),
    ('<think>The answer is A?</think> The answer is B.', DRUGS, 'B'),
    ('Yes, tamoxifen helps.', YES_NO, 'A'),
    ('Yes - it does', YES_NO, 'A'),
    ('The answer is no, since nobody was helped.', YES_NO, 'B'),
    ('Therefore, the answer is "yes".', YES_NO, 'A'),
    ('A: yes', YES_NO, 'A'),
    ('A (yes)', YES_NO, 'A'),
    ('(A) Yes', YES_NO, 'A'),
    ('No', YES_NO_MAYBE, 'B'),
    ('Possibly', YES_NO_MAYBE, 'C'),
    ('It depends.', YES_NO_MAYBE, 'unreadable'),
    ('True', YES_NO, 'A'),
    ('Not enough information is given to choose between A and B.', DRUGS, 'refused'),
    ('Both are right: A and C.', DRUGS, 'several'),
    ('Options A and C', DRUGS, 'several'),
    ('A and C are correct.', DRUGS, 'several'),
    ('The correct answers are A and C.', DRUGS, 'several'),
    ('The answer is A and C.', DRUGS, 'several'),
    ('A as well as C', DRUGS, 'several'),
    ('The documents provided do not contain information about this drug.', DRUGS, 'refused'),
    ('I do not know.', DRUGS, 'refused'),
    ("I don't have enough information to answer.", DRUGS, 'refused'),
    ('As an AI language model, I cannot give medical advice.', DRUGS, 'refused'),
    ('There is not enough evidence to say.', DRUGS, 'refused'),
    ('The correct answer is not among the options.', DRUGS, 'none of the options'),
    ('No correct option is given.', DRUGS, 'none of the options'),
    ('Neither.', DRUGS, 'none of the options'),
    ('openai.error.RateLimitError: You exceeded your current quota', DRUGS, 'api error'),
    ('Error: 429 Too Many Requests', DRUGS, 'api error'),
    ('ReadTimeout', DRUGS, 'api error'),
    ('HTTPSConnectionPool(host=x): Read timed out.', DRUGS, 'api error'),
    ("This model's maximum context length is 4096 tokens.", DRUGS, 'api error'),
    ('null', DRUGS, 'empty'),
    ('None of the documents mention vitamin D, but the answer is B.', DRUGS, 'B'),
    ('I am not sure, but B.', DRUGS, 'unreadable'),
    ('B (I am not sure)', DRUGS, 'B'),
    ('The answer is A or possibly D.', DRUGS, 'several'),
    ('Though the answer could be A, the best answer is B.', DRUGS, 'B'),
    ('Is the answer A? No. B.', DRUGS, 'unreadable'),
    ('{"answer_choice": "The answer is B"}', DRUGS, 'B'),
    ('{"answer_choice": "B (Vitamin D)"}', DRUGS, 'B'),
    ('{"answer_choice": "B/Vitamin D"}', DRUGS, 'B'),
    ('{"answer_choice": "Option B: Vitamin D"}', DRUGS, 'B'),
    ('{"answer_choice": "D. A low dose of aspirin, not A. Tamoxifen"}', DRUGS, 'D'),
    # steps on the way to an answer
    ('Let us evaluate each answer choice:\n\nA. Tamoxifen: no.\nB. Vitamin D: yes.\n\nTherefore, the most likely drug is B. Vitamin D.',
     DRUGS, 'B'),
    ('Option A is correct. Option B is correct. Nothing speaks against C.', DRUGS, 'unreadable'),
    ('C. difficile grows slowly', {**DRUGS, 'C': 'Clostridia'}, 'unreadable'),
    ('A is wrong.', DRUGS, 'unreadable'),
]


@cases('text, options, expected', CASES)
def test_invented(text, options, expected):
    reading = read_answer(text, options)
    assert (reading.label or reading.kind) == expected, reading
    assert reading.note


def test_tables_fit():
    assert len(CASES) >= 60 and {e for *_, e in CASES} >= FAILURES.keys()
    assert set(DECLINING_KINDS) == {'refused', 'none of the options'}
    assert len(dict(ANSWER_RULES)) == len(ANSWER_RULES)


def test_named_in_order():
    assert read_answer('C or B', DRUGS).named == ('C', 'B')
    assert read_answer('B. Tamoxifen', DRUGS).named == ('B', 'A')


pieces = st.sampled_from(['{', '}', '"', "'", 'answer', '"answer": ', 'answer_choice', ':', 'A', 'B.', '(C)', 'E', ' ', '\n',
                          'the answer is ', 'or', 'and', '/', ',',
                          '**', '```json', 'none', 'not', 'yes', 'no', 'Vitamin D', 'cannot', '[', ']', '\\boxed{', 'null', '-5', '\ud800',
                          '﷽', 'ß'])
texts = st.text(max_size=300) | st.lists(pieces, max_size=30).map(''.join)
option_sets = st.sampled_from([DRUGS, DOSES, NONES, BLOOD, BUGS, YES_NO, YES_NO_MAYBE, {'1': 'one', '2': 'two'},
                               {}]) | st.dictionaries(st.sampled_from('ABCDE'), st.text(max_size=20), max_size=5)


@given(texts, option_sets)
def test_any_text_gives_one_reading(text, options):
    reading = read_answer(text, options)
    assert (reading.label in options and reading.kind == 'answer') or (reading.label is None and reading.kind in FAILURES)
    assert set(reading.named) <= options.keys()
    assert reading == read_answer(text, options)


forms = st.sampled_from(['{0}', '({0})', '{0}.', '{0}. {1}', '{0}) {1}', 'The answer is {0}.', 'The answer is ({0}).', 'Answer: {0}',
                         'Option {0} is correct.', '{1}', 'Final answer: {0}. {1}'])
decorations = st.sampled_from(['{}', '**{}**', '  {}\n', '`{}`', '> {}', '# {}', '- {}', '"{}"', '\n\n{}\n\n', '_{}_', '***{}***', '\t{}'])
spellings = st.sampled_from([str, str.lower, str.upper])


@given(forms, st.sampled_from('ABCD'), decorations, spellings)
def test_decoration_and_case_do_not_matter(form, label, decoration, case):
    assert read_answer(case(decoration.format(form.format(label, DRUGS[label]))), DRUGS).label == label


@given(st.sampled_from([t for t, o, e in CASES if t and o is DRUGS
                        and e in ('refused', 'none of the options', 'several') and '{' not in t]), decorations, spellings)
def test_decorated_failures(text, decoration, case):
    assert read_answer(case(decoration.format(text)), DRUGS).kind == read_answer(text, DRUGS).kind


@cases('unit', ['a', '{', '{"a":', '"answer": ', 'A, ', 'not ', ' ', 'the answer is ', '\n', '**', '[', 'B. ', '{"answer": {"x": ', "'",
                'no evidence '])
def test_long_hostile_text_is_read(unit):   # a rule that took quadratic time would hang here
    assert read_answer(unit*(100_000//len(unit)), DRUGS).kind in {*FAILURES, 'answer'}
    assert read_answer('{"answer_choice": "' + unit*(100_000//len(unit)), DRUGS).kind in {*FAILURES, 'answer'}


# ---- policies

def asked(*ids, options=DRUGS): return [Question(id, 'Which?', 'choice', 'invented', options) for id in ids]


def test_policies():
    readings = [read_answer(t, DRUGS) for t in ('B', 'C or B', 'N/A', '', "'content'")]
    got = {policy: apply_policy(readings, asked(*'vwxyz'), policy) for policy in POLICIES}
    assert got['wrong'] == got['abstain'] == ['B', None, None, None, None]
    assert got['first-option'] == ['B', 'C', 'A', None, 'A']
    assert got['random'][0] == 'B' and set(got['random']) <= set(DRUGS)


@given(st.permutations(range(12)), st.integers(0, 5))
def test_a_random_draw_depends_on_seed_and_id_alone(order, seed):
    ids = [f'q{i}' for i in order]
    draws = dict(zip(ids, apply_policy([AnswerReading(None, 'refused')]*12, asked(*ids), 'random', seed)))
    assert draws == {id: apply_policy([AnswerReading(None, 'empty')], asked(id), 'random', seed)[0] for id in ids}


def test_random_draws_are_even():
    ids = [str(i) for i in range(4000)]
    drawn = Counter(apply_policy([AnswerReading(None, 'refused')]*4000, asked(*ids), 'random'))
    assert all(900 < drawn[label] < 1100 for label in DRUGS)
    assert apply_policy([AnswerReading(None, 'refused')]*4000, asked(*ids), 'random',
                        seed=1) != apply_policy([AnswerReading(None, 'refused')]*4000, asked(*ids), 'random')


def test_what_policies_refuse():
    with pytest.raises(CpqaError, match='wrong, abstain, first-option, random'): apply_policy([], [], 'best')
    with pytest.raises(ValueError, match='1 readings for 2 questions'):
        apply_policy([AnswerReading('A', 'answer')], asked('x', 'y'), 'wrong')
    assert apply_policy([AnswerReading(None, 'refused')], asked('x', options={}), 'random') == [None]


# ---- what was really written

PUBLISHED = {   # MIRAGE's table: accuracy in percent
    'gpt-3.5_cot':    {'mmlu': 72.91, 'medqa': 65.04, 'medmcqa': 55.25, 'pubmedqa': 36.00},
    'gpt-3.5_medrag': {'mmlu': 75.48, 'medqa': 66.61, 'medmcqa': 58.04, 'pubmedqa': 67.40},
    'gpt-4_cot':      {'mmlu': 89.44, 'medqa': 83.97, 'medmcqa': 69.88, 'pubmedqa': 39.60},
    'gpt-4_medrag':   {'mmlu': 87.24, 'medqa': 82.80, 'medmcqa': 66.65, 'pubmedqa': 70.60},
}
SIZES = {'mmlu': 1089, 'medqa': 1273, 'medmcqa': 4183, 'pubmedqa': 500}


def gold(data, name) -> dict[str, tuple[dict[str, str], str]]:
    "Of each question, under the id of its recorded answers: the options and the right label."
    raw = data/'mirage'/'rawdata'
    match name:
        case 'mmlu': return {f'{f.name[:-len("_test.csv")]}-{i:03d}': (dict(zip('ABCD', row[1:5])), row[5])
                             for f in (raw/'mmlu/data/test').glob('*_test.csv') for i,
                             row in enumerate(csv.reader(f.open(encoding='utf-8', newline='')))}
        case 'medqa': return {f'{i:04d}': ((q := json.loads(line))['options'], q['answer_idx'])
                              for i, line in enumerate(
                                  (raw/'medqa/data_clean/questions/US/4_options/phrases_no_exclude_test.jsonl').open(encoding='utf-8'))}
        case 'medmcqa': return {(q := json.loads(line))['id'][1:]: ({k: q[f'op{k.lower()}'] for k in 'ABCD'}, 'ABCD'[q['cop'] - 1])
                                # the recorded ids lack their first character
                                for line in (raw/'medmcqa/data/dev.json').open(encoding='utf-8')}
        case 'pubmedqa': return {id: (YES_NO_MAYBE, {'yes': 'A', 'no': 'B', 'maybe': 'C'}[answer])
                                 for id, answer in json.loads((data/'pubmedqa/test_ground_truth.json').read_text()).items()}


def recorded(data, name, system) -> dict[str, str | None]:
    with gzip.open(data/'recorded_answers'/f'{name}.{system}.jsonl.gz', 'rt', encoding='utf-8') as f:
        return {(a := json.loads(line))['id']: (a['raw'] or [None])[0] for line in f}


@cases('name', SIZES)
@cases('system', PUBLISHED)
def test_recorded_answers_give_the_published_table(data_dir, system, name):
    answers, truth = recorded(data_dir, name, system), gold(data_dir, name)
    assert answers.keys() == truth.keys() and len(answers) == SIZES[name]
    readings = {id: read_answer(text, truth[id][0]) for id, text in answers.items()}
    kinds = Counter(r.kind for r in readings.values())
    assert kinds.total() == SIZES[name] and kinds.keys() <= {'answer', *FAILURES}
    assert kinds['unreadable'] <= 1 and kinds['unknown option'] <= 10
    counted = apply_policy(readings.values(), [Question(id, 'Which?', 'choice', name, truth[id][0]) for id in readings], 'first-option')
    right = sum(label == truth[id][1] for id, label in zip(readings, counted))
    assert abs(100*right/SIZES[name] - PUBLISHED[system][name]) < 0.2


def test_thoughts_read_as_prose_agree_with_the_field(data_dir):
    "What the thoughts alone, without their JSON, are read as: silence is allowed, another label hardly ever."
    truth, agree = gold(data_dir, 'mmlu'), Counter()
    for id, text in recorded(data_dir, 'mmlu', 'gpt-3.5_cot').items():
        try: field, thoughts = (found := json.loads(text)).get('answer_choice'), found['step_by_step_thinking']
        except ValueError: continue
        options = truth[id][0]
        if (stated := read_answer(field, options).label) and (label := read_answer(thoughts, options).label): agree[stated == label] += 1
    assert agree[True] >= 300 and agree[False] <= agree.total()/100


@pytest.mark.parametrize('system', PUBLISHED)
def test_recorded_yes_and_no(data_dir, system):
    kinds = Counter(read_answer(text, YES_NO).kind for text in recorded(data_dir, 'bioasq', system).values())
    assert kinds.total() == 618 and kinds['unreadable'] == kinds['unknown option'] == 0 and kinds['answer'] >= 610
