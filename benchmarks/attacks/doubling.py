"""Which functions take far more than twice the time for twice the text?

Every function that a module of cpqa exports, and every public method of a class that can be made without arguments, is called with hostile
texts, if one of its arguments is a text, bytes, a document or some of these. A call that takes over 20 ms for the longest text is looked at
again from short texts on: where the time more than triples as the text doubles, the function is named.
"""
import collections.abc
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import multiprocessing
import os
import pkgutil
import random
import resource
import signal
import socket
import tempfile
import time
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from .tally import Tally

LONGEST, SHORTEST = 64_000, 125             # characters
FIRST, LIMIT, NOTICED = 0.3, 1.5, 0.02      # seconds of computing: for the first look, for a call, and what is too short to judge
TRIPLE, ENOUGH = 3.0, 5                     # times; texts found for a function, after which no more are tried
BUDGET = 60.0                               # seconds of computing for a function
SENTENCE = ('Overall survival was longer with drug A than with placebo (hazard ratio 0.68; 95% CI, 0.54 to 0.85; P = 0.001), and 12 of 45 '
            'patients (26.7%) did not respond. ')
QUESTION = 'Is drug A more effective than placebo for lung cancer? '
UNITS = ['.', '\n', '(', ')', '()', '[', '[1', '{', '"', "'", '“', '7', '1.', '1, ', '-', '- ', '–', ' ', '\t', '\xa0', '<', '<a>', '&',
         '&#',
         'a', 'A', 'é', 'CI ', 'ab ', 'A B ', 'Ab', 'no ', 'not ', 'or ', 'and ', 'AND ', '\\', '*', '_', '|', '`', '~', '#', '/', ':', ';',
         ',',
         '%', '= ', '@', '?', '!', 'e.g. ', 'A. ', 'a.b', '(a', 'a-', "a'", '"a" ', '{"a":', '[PMID 1]', '1 of 2 ', '0.5 ', 'than ', 'yes ',
         'patients ', 'lung cancer ', 'cancer AND ', '\u0301', '\u200b', '🙂', SENTENCE, QUESTION, '- item\n', '\n\n', 'because ', 'is ',
         '<b>x']
FRAMES = {'alone': '{}', 'framed': 'a{}z'}
LEFT_OUT = {   # what these do is no work on a text, or is attacked elsewhere
    'named',        # its names are as long as the text here, and short in truth: what it writes is their product
    'candidate_pairs', 'near_duplicates', 'without_leaks', 'drawn',   # n texts that are the same: the pairs, or what is drawn by one name
                    # given n times, are n times n
    'main', 'serve', 'console', 'convert', 'fork_safe',
    'encoder_input',                        # puts the prompt, as long as the text here and a few words in truth, before each of many texts
    'answer_to', 'ask_magic', 'CancerQA.ask', 'CancerQA.gather', 'CancerQA.retrieve',   # a whole ask: its question has a bound of
                    # letters, and tests/test_attack asks one at that bound
    'forest'}       # matplotlib lays out a label of 64,000 letters: a picture of one's own results, no text from outside


def texts(n: int, unit: str, frame: str) -> str:
    "A text of about `n` characters, of another length each time, since some functions remember what they saw."
    body = (unit * (n // len(unit) + 1))[:n - random.randrange(n // 16 + 1)]
    return FRAMES[frame].format(body) + random.choice('bcdf') * random.randint(0, 3) * (frame == 'framed')


# ---- arguments from annotations

class Unmade(Exception): "No value can be made for a parameter."


def _document(text: str):
    from cpqa.core.records import Document
    return Document(id='1', title=text[:200] if len(text) < 200 else '', text=text, year=2020)


def _passage(text: str):
    from cpqa.core.records import Passage
    return Passage('1', 0, len(text), text)


def _evidence(text: str):
    from cpqa.core.records import Evidence
    return Evidence(_passage(text), 1.0)


def _citation(text: str):
    from cpqa.core.records import Citation
    return Citation('1', text, 0, len(text), 1.0)


def _answer(text: str):
    from cpqa.core.records import Answer
    return Answer('Is it?', text, (_citation(text),), (_evidence(text),))


MADE = {'Document': _document, 'Passage': _passage, 'Evidence': _evidence, 'Citation': _citation, 'Answer': _answer}
PLAIN = {int: 3, float: 0.5, bool: False, type(None): None, dict: {}, object: None}


def value(kind, text: str, words: bool = False) -> tuple[object, bool]:
    "A value of an annotated kind that holds `text`, and whether it does; `words`: a sequence of texts holds the words one by one."
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if kind is str: return text, True
    if kind is bytes: return text.encode('utf-8', 'replace'), True
    if kind in PLAIN: return PLAIN[kind], False
    if kind is inspect.Parameter.empty or kind is typing.Any: raise Unmade('it says not what it takes')
    name = getattr(kind, '__name__', '')
    if name in MADE and (getattr(kind, '__module__', '')).startswith('cpqa'): return MADE[name](text), True
    if origin is typing.Annotated: return value(of[0], text, words)
    if origin is typing.Literal: return of[0], False
    if origin in (typing.Union, types.UnionType):
        if any(getattr(o, '__name__', '') == 'Path' for o in of): raise Unmade('a place on the disk')
        tried = []
        for o in of:
            with contextlib.suppress(Unmade): tried.append(value(o, text, words))
        if not tried: raise Unmade(str(kind))
        return next((t for t in tried if t[1]), tried[0])
    if origin is tuple and of and of[-1] is not Ellipsis:
        parts = [value(o, text, words) for o in of]
        return tuple(p for p, _ in parts), any(h for _, h in parts)
    if origin in (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection,
                  collections.abc.Set, collections.abc.Iterator):
        parts = [value(of[0], t, words) for t in (text.split() or [text] if words else [text])]
        found = [p for p, _ in parts]
        made = (set(found) if origin in (set, collections.abc.Set) else frozenset(found) if origin is frozenset else
                tuple(found) if origin is tuple else iter(found) if origin is collections.abc.Iterator else found)
        return made, any(h for _, h in parts)
    if origin in (dict, collections.abc.Mapping):
        (key, _), (v, holds) = value(of[0], 'A' if of[0] is str else text), value(of[1], text, words)
        return {key: v}, holds
    if origin is collections.abc.Callable or kind is collections.abc.Callable: return (lambda *_, **__: ''), False
    if hasattr(kind, '__struct_fields__') or hasattr(kind, '__dataclass_fields__'):
        given, holds = arguments(kind, text, words)
        return kind(**given), holds
    raise Unmade(f'{name or kind}')


def arguments(f: Callable, text: str, words: bool = False) -> tuple[dict, bool]:
    "The arguments for a call of `f` that hold `text` wherever a text is wanted, and whether any does."
    try: hints = typing.get_type_hints(f.__init__ if isinstance(f, type) and not hasattr(f, '__struct_fields__') else f)
    except Exception as e: raise Unmade(f'annotations: {e}') from None
    given, holds = {}, False
    for i, p in enumerate(inspect.signature(f).parameters.values()):
        if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL): continue
        if p.default is not p.empty and i: continue
        if p.name == 'self' or (p.name in ('path', 'folder', 'out', 'file', 'url') and hints.get(p.name) in (str, None)):
            raise Unmade('a place on the disk or on the net')
        try: given[p.name], held = value(hints.get(p.name, p.empty), text, words)
        except Unmade as e: raise Unmade(f'{p.name}: {e}') from None
        holds |= held
    return given, holds


def call(f: Callable, given: dict):
    "Calls `f`, and takes from a generator all that it gives."
    by_place = [p.name for p in inspect.signature(f).parameters.values() if p.kind is p.POSITIONAL_ONLY]
    made = f(*[given[n] for n in by_place if n in given], **{k: v for k, v in given.items() if k not in by_place})
    if isinstance(made, Iterator): collections.deque(made, maxlen=0)
    elif isinstance(made, contextlib.AbstractContextManager) and not isinstance(made, io.IOBase): getattr(made, 'close', lambda: None)()


# ---- what there is to call

def modules() -> list[str]:
    "The modules of cpqa by name."
    import cpqa
    return sorted(m.name for m in pkgutil.walk_packages(cpqa.__path__, 'cpqa.') if not m.ispkg)


def callables(module) -> list[tuple[str, Callable]]:
    "The functions and methods to be tried of a module, with their names."
    out = []
    for name in getattr(module, '__all__', []):
        thing = getattr(module, name)
        if name in LEFT_OUT or getattr(thing, '__module__', module.__name__) != module.__name__: continue
        if isinstance(thing, type):
            if issubclass(thing, BaseException): continue
            for method, static in vars(thing).items():
                if method.startswith('_') or not callable(getattr(thing, method, None)) or f'{name}.{method}' in LEFT_OUT: continue
                if isinstance(static, (classmethod, staticmethod)): out.append((f'{name}.{method}', getattr(thing, method)))
                elif inspect.isfunction(static): out.append((f'{name}.{method}', partial(_bound, thing, method)))
        elif callable(thing): out.append((name, thing))
    return out


def _bound(cls: type, method: str) -> Callable:
    "A method of an object that is made without arguments, where it can be."
    try: return getattr(cls(), method)
    except Exception: raise Unmade(f'{cls.__name__} needs arguments') from None


# ---- how long it takes

class TooLong(BaseException): "The time for a call is over."


def clocked(deed: Callable[[], object], limit: float) -> float:
    """The seconds of computing that a deed takes; infinite where it was stopped. What it raises is no matter here.
    The listener stays when the clock is put away: a ring that comes later, even with the next deed, finds one, who drops it. What the
    system does by default at such a ring is to end the process."""
    on, stopped, start = [True], False, time.process_time()

    def ring(*_):
        if on and time.process_time() - start > limit / 2: raise TooLong

    signal.signal(signal.SIGPROF, ring)
    try:
        signal.setitimer(signal.ITIMER_PROF, limit)   # it rings once: in here, or when nobody listens any more
        with contextlib.suppress(Exception): deed()
        on.clear()
    except TooLong:
        stopped = True
        on.clear()
    seconds = time.process_time() - start
    signal.setitimer(signal.ITIMER_PROF, 0)
    return float('inf') if stopped else seconds


def timed(f: Callable, text: str, words: bool = False, limit: float = LIMIT) -> float:
    "The same of a call with arguments that are made of a text."
    given, _ = arguments(f, text, words)
    return clocked(lambda: call(f, given), limit)


def _suspect(measure: Callable[..., float], n: int) -> bool:
    """Whether the longest text that is done within the first look (at most `n` characters) takes thrice the time of half of it, or may.
    Where `n` characters take longer, it is looked for from short texts on, which costs no more than two first looks."""
    seconds = measure(n, FIRST)
    if seconds != float('inf'): return seconds >= NOTICED and seconds > TRIPLE * measure(n // 2, FIRST)
    half, top = 0.0, SHORTEST
    while (seconds := measure(top, FIRST)) != float('inf'):
        if seconds >= NOTICED and half and seconds > TRIPLE * max(half, NOTICED / TRIPLE): return True
        if (top := 2 * top) >= n: return seconds < FIRST / TRIPLE
        half = seconds
    return half < FIRST / TRIPLE   # stopped, though half of it took less than a third: it may


def growth(measure: Callable[..., float], longest: int = LONGEST) -> dict | None:
    "Where the time of `measure(n, limit)` more than triples as n doubles, twice in a row or beyond the limit: n and the times, or None."
    if not _suspect(measure, longest): return None
    seen, n, steep = {}, SHORTEST, 0
    while n <= longest and steep < 2:
        again = lambda: min(measure(n, LIMIT) for _ in range(2))
        seen[n] = measure(n, LIMIT)
        stopped, half = seen[n] == float('inf'), seen.get(n // 2, 0.0)
        if NOTICED < seen[n] and seen[n] > TRIPLE * half and not stopped: seen[n] = min(seen[n], again())
        steep = steep + 1 if NOTICED < seen[n] and seen[n] > TRIPLE * half else 0
        if stopped:   # after a time that was near the limit already, that says nothing; for the shortest text, it says enough
            steep = 2 if half < LIMIT / TRIPLE and (n > SHORTEST or LIMIT > 1) else 0
            break
        n *= 2
    if steep < 2: return None
    last = max(seen)
    return {'characters': last, 'ms': [None if seen[m] == float('inf') else round(1000 * seen[m], 1)
                                       for m in (last // 4, last // 2, last) if m in seen]}


def shapes(quick: bool = False) -> Iterator[tuple[str, str]]:
    "Unit and frame of each hostile text."
    yield from ((u, f) for u in UNITS for f in FRAMES if not quick or f == 'alone' and UNITS.index(u) % 3 == 0)


def slow_shapes(f: Callable, quick: bool = False, longest: int = LONGEST, budget: float = BUDGET) -> list[dict]:
    """The hostile texts that a function takes too long for, the first few of them. What computes for longer than the budget of seconds in
    all (a network) is tried on as many shapes as that allows, in an order by chance; a last row says so: `untried`, of `shapes`."""
    out, many, start = [], '[str]' in str(inspect.signature(f)), time.process_time()
    each = list(shapes(quick))
    random.Random(len(each)).shuffle(each)
    for i, (unit, frame) in enumerate(each):
        if time.process_time() - start > budget: return [*out, {'untried': len(each) - i, 'shapes': len(each)}]
        for words in (False, True) if many and ' ' in unit else (False,):
            if found := growth(lambda n, limit: timed(f, texts(n, unit, frame), words, limit), longest):
                out.append({'text': unit if len(unit) < 20 else unit[:17] + '...', 'frame': frame + (', in words' if words else ''),
                            **found})
        if len(out) >= ENOUGH: break
    return out


# ---- a process a module, so that what cannot be stopped is ended

def _closed(*_): raise OSError('no network here')


def _child(name: str, names: list[str], quick: bool, pipe):
    "Tries the callables `names` of a module, and tells of each before and after."
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    socket.socket.connect, time.sleep = _closed, lambda _: None   # who waits for a server has nothing to wait for
    with tempfile.TemporaryDirectory() as home, open(os.devnull, 'w') as nothing, contextlib.redirect_stdout(nothing), \
            contextlib.redirect_stderr(nothing), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        os.environ |= {'HOME': home, 'CPQA_CACHE': os.environ.get('CPQA_CACHE', home)}
        os.chdir(home)
        for what, f in callables(importlib.import_module(name)):
            if what not in names: continue
            pipe.send(('begin', what, None))
            try:
                if isinstance(f, partial) and f.func is _bound: f = f()
                _, holds = arguments(f, 'some text')
                if not holds: pipe.send(('no text', what, None)); continue
                with contextlib.suppress(Unmade): timed(f, 'some text', limit=60)   # what is loaded once is no work on a text
                pipe.send(('done', what, slow_shapes(f, quick)))
            except Unmade as e: pipe.send(('not tried', what, str(e)))
            except Exception as e: pipe.send(('not tried', what, f'{type(e).__name__}: {e}'[:100]))
    pipe.send(('end', '', None))


def module_tried(name: str, quick: bool, patience: float = 1200.0) -> Iterator[tuple[str, str, object]]:
    "What became of each callable of a module: ('done' | 'no text' | 'not tried' | 'hangs', its name, what was found)."
    left = [what for what, _ in callables(importlib.import_module(name))]
    while left:
        ours, theirs = multiprocessing.Pipe(False)
        child = multiprocessing.get_context('fork').Process(target=_child, args=(name, left, quick, theirs))
        child.start()
        theirs.close()
        now = ''
        try:
            while ours.poll(patience):
                state, what, found = ours.recv()
                if state == 'end': left = []; break
                if state == 'begin': now = what; continue
                left = [x for x in left if x != what]
                yield state, what, found
            else: raise EOFError
        except EOFError:
            left = [x for x in left if x != now] if now in left else left[1:]
            yield 'hangs', now or name, [{'text': 'see the module', 'characters': LONGEST, 'ms': [None],
                                          'frame': 'cannot be stopped, or dies'}]
        finally:
            child.kill()
            child.join()


LOADED = ('torch', 'transformers.models.auto.configuration_auto', 'sentence_transformers')   # what calls may load when they are first used
KNOWN = Path(__file__).resolve().parent.parent / 'results' / 'doubling.jsonl'   # a line for each module that was tried whole


def known() -> dict[str, dict]:
    "What became of each module, by its name, and of which source."
    lines = KNOWN.read_text(encoding='utf-8').splitlines() if KNOWN.exists() else []
    return {row['module']: row for row in map(json.loads, lines)}


def module_row(name: str, quick: bool = False, afresh: bool = False) -> dict:
    """What became of a module's callables: tried now, or known of a whole run on the same source, which a change in another module does
    not show."""
    source = hashlib.sha256(Path(importlib.import_module(name).__file__).read_bytes()).hexdigest()[:12]
    before = {} if afresh or quick else known()
    if before.get(name, {}).get('source') == source: return before[name]
    row = {'module': name, 'source': source, 'found': [list(each) for each in module_tried(name, quick)]}
    if not quick:
        rows = known() | {name: row}   # another run may have written meanwhile
        KNOWN.write_text(''.join(json.dumps(rows[module]) + '\n' for module in sorted(rows)), encoding='utf-8')
    return row


def run(quick: bool = False, only: str = '', afresh: bool = False) -> Iterator[Tally]:
    "Tries all exported functions on texts; `only` names a part of a module's name. What was tried whole before is not tried again."
    tally, skipped, part, slow = Tally('doubled texts, by exported function'), {}, {}, []
    names = [m for m in modules() if only in m]
    for name in (*names, *LOADED):   # once, before the processes part: loading is no work on a text
        with contextlib.suppress(ImportError): importlib.import_module(name)
    for name in names:
        for state, what, found in module_row(name, quick, afresh)['found']:
            full = f'{name}.{what}'
            if state == 'no text': continue
            if state == 'not tried': skipped[full] = found; continue
            if found and 'untried' in found[-1]: part[full] = found.pop()
            slow += [{'function': full, **row} for row in found]
            worst = max((m if m is not None else 1000 * LIMIT for row in found for m in row['ms']), default=0) / 1000
            said = '; '.join(f'{r["text"]!r} {r["frame"]}, {r["characters"]} characters: {r["ms"]} ms' for r in found[:3])
            tally.add(full, said, worst)
            if found: print(f'{full}: {len(found)} texts, {said}', flush=True)
    tally.notes = {'not_tried': len(skipped), 'not_tried_why': skipped, 'slow': slow,
                   'in_part': {full: f'{row["shapes"] - row["untried"]} of {row["shapes"]} shapes' for full, row in part.items()}}
    yield tally
