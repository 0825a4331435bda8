"""Which regular expressions of the package take the square of a text's length? Each is held against texts made from its own parts.

A repeated part of a pattern is what goes wrong: its own words again and again, after what stands before it, and before a character that
does not belong there. Texts from outside, as in `doubling`, seldom hit a part that is seldom reached.
"""
import ast
import collections
import importlib
import inspect
import re
from collections.abc import Callable, Iterator

from .doubling import FIRST, LIMIT, clocked, growth, modules
from .tally import Tally

try: import re._parser as parser   # the parse tree of a pattern, which has no public home since Python 3.11
except ImportError: import sre_parse as parser

OFTEN = 8   # a part that repeats more often than this can take long
SIZES = 32_000


def example(tree) -> str:
    "A text that a parsed pattern takes, its repeated parts once; looks around and back references as if they were not there."
    out = []
    for op, of in tree:
        op = str(op)
        if op == 'LITERAL': out.append(chr(of))
        elif op == 'NOT_LITERAL': out.append('a' if of != ord('a') else 'b')
        elif op == 'ANY': out.append('a')
        elif op == 'IN': out.append(_of_set(of))
        elif op == 'BRANCH': out.append(example(of[1][0]))
        elif op == 'SUBPATTERN': out.append(example(of[3]))
        elif op == 'ATOMIC_GROUP': out.append(example(of))
        elif op in ('MAX_REPEAT', 'MIN_REPEAT', 'POSSESSIVE_REPEAT'): out.append(example(of[2]) * max(1, min(of[0], 30)))
    return ''.join(out)


SEVERAL = 'a7 -.(,_A'   # what a set may hold, of each kind one


def _of_set(items) -> str: return _members(items)[0]


def _members(items) -> str:
    "Characters of a set, of each kind one."
    source = re.compile('[' + ''.join(_written(op, v) for op, v in items) + ']')
    own = [chr(v) for op, v in items if str(op) == 'LITERAL'] if str(items[0][0]) != 'NEGATE' else []
    return ''.join(dict.fromkeys([c for c in SEVERAL if source.match(c)] + own))[:4] or 'é'


def _written(op, v) -> str:
    "A part of a set, as it is written."
    op, v = str(op), v if not hasattr(v, 'name') else str(v)
    if op == 'NEGATE': return '^'
    if op == 'LITERAL': return re.escape(chr(v))
    if op == 'RANGE': return f'{re.escape(chr(v[0]))}-{re.escape(chr(v[1]))}'
    short = {'DIGIT': 'd', 'SPACE': 's', 'WORD': 'w'}[v.removeprefix('CATEGORY_').removeprefix('NOT_')]
    return '\\' + (short.upper() if 'NOT_' in v else short)


def units(tree, before: str = '') -> Iterator[tuple[str, str]]:
    "(what stands before, what repeats) for each part of a parsed pattern that may repeat often, and for the pattern as a whole."
    for op, of in tree:
        op = str(op)
        one = example([(op, of)])
        if op in ('MAX_REPEAT', 'MIN_REPEAT', 'POSSESSIVE_REPEAT'):
            several = _members(of[2][0][1]) if len(of[2]) == 1 and str(of[2][0][0]) == 'IN' else ''
            if of[1] > OFTEN: yield from ((before, unit) for unit in dict.fromkeys([example(of[2]), *several, several]) if unit)
            yield from units(of[2], before)
        elif op == 'BRANCH':
            for branch in of[1]: yield from units(branch, before)
        elif op == 'SUBPATTERN': yield from units(of[3], before)
        elif op in ('ASSERT', 'ASSERT_NOT'): yield from units(of[1], before)
        elif op == 'ATOMIC_GROUP': yield from units(of, before)
        before += one


def hostile(pattern: re.Pattern) -> Iterator[tuple[str, str, str]]:
    "Texts in three parts: what stands first, what repeats, what stands last."
    tree, seen = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG), set()
    for before, unit in units(tree):
        for parts in ((before, unit, '\x00'), (before, unit, 'a'), (before, unit, '.'), ('', before + unit, '\x00'),
                      ('', before or unit, '!'),
                      ('', before + ' ', ''), ('', unit + ' ', '!'), ('a', unit, 'a')):
            if parts[1] and parts not in seen: seen.add(parts); yield parts


def use(pattern: re.Pattern, how: Callable[[str], object], parts: tuple[str, str, str], n: int, limit: float) -> float:
    "The seconds of computing for one text of about `n` characters."
    first, unit, last = parts
    text = first + (unit * (n // len(unit) + 1))[:n] + last
    text = text.encode('latin-1', 'replace') if isinstance(pattern.pattern, bytes) else text
    return clocked(lambda: how(text), limit)


def slow_texts(pattern: re.Pattern, whole: bool = False, longest: int = SIZES) -> dict | None:
    "The first text that a pattern takes too long for; `whole`: it is only ever held against the beginning of a text."
    how = pattern.match if whole else lambda text: collections.deque(pattern.finditer(text), maxlen=0)
    for parts in hostile(pattern):
        if found := growth(lambda n, limit: use(pattern, how, parts, n, limit), longest): return {'text': [p[:40] for p in parts], **found}
    return None


def patterns(module) -> Iterator[tuple[str, re.Pattern, bool]]:
    "The patterns of a module: their names or lines, and are they only held against the beginning of a text?"
    source = inspect.getsource(module)
    for name, thing in vars(module).items():
        named = [(name, thing)] if isinstance(thing, re.Pattern) else []
        if isinstance(thing, (list, tuple)):
            named = [(f'{name}[{i}]', x) for i, item in enumerate(thing) for x in (item if isinstance(item, tuple) else (item,))
                     if isinstance(x, re.Pattern)]
        for full, pattern in named:
            if not re.search(rf'^\s*(?:\w+, )*{name}\b.*=', source, re.M): continue   # it is another module's
            used = set(re.findall(rf'\b{name}\.(\w+)', source))
            yield full, pattern, bool(used) and used <= {'match', 'fullmatch', 'pattern'}
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, ast.Call) and ast.unparse(n.func) in ('re.search', 're.sub', 're.split', 're.findall', 're.finditer', 're.match',
                                                               're.fullmatch') and n.args and isinstance(n.args[0], ast.Constant):
            told = [ast.unparse(x) for x in (*n.args[1:], *(k.value for k in n.keywords))]
            found = re.RegexFlag(0)
            for flag in re.findall(r'\bre\.([A-Z]+)\b', ' '.join(told)): found |= getattr(re, flag)
            yield f'line {n.lineno}', re.compile(n.args[0].value, found), ast.unparse(n.func) in ('re.match', 're.fullmatch')


def run(quick: bool = False, only: str = '') -> Iterator[Tally]:
    "Tries the patterns of all modules."
    tally, slow = Tally('doubled texts, by pattern'), []
    for name in modules():
        if only not in name: continue
        for what, pattern, whole in patterns(importlib.import_module(name)):
            if quick and tally.tries % 5: tally.tries += 1; tally.held += 1; continue
            found = slow_texts(pattern, whole)
            tally.add(f'{name}.{what}', f'{found["text"]}, {found["characters"]} characters: {found["ms"]} ms' if found else '')
            if found:
                slow.append({'pattern': f'{name}.{what}', **found})
                print(f'{name}.{what} {pattern.pattern[:60]!r}: {found}', flush=True)
    tally.notes = {'slow': slow}
    yield tally
