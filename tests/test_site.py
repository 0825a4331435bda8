"""The documentation site, built once from a copy of the project: every notebook a page, every link whole, nothing from elsewhere."""
import contextlib
import functools
import html
import http.server
import importlib.util
import json
import posixpath
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from conftest import ROOT, cases, copy_project, run_in

pytestmark = pytest.mark.release
spec = importlib.util.spec_from_file_location('docs_script', ROOT/'.ci'/'docs.py')
docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docs)

NOTEBOOKS = docs.notebooks()
RESOURCES = {'script': ['src'], 'img': ['src', 'srcset'], 'source': ['src', 'srcset'], 'video': ['src', 'poster'], 'audio': ['src'],
             'iframe': ['src'], 'embed': ['src'], 'object': ['data'], 'input': ['src'], 'use': ['href'], 'image': ['href', 'xlink:href']}
LOADING_RELS = {'stylesheet', 'icon', 'preload', 'modulepreload', 'prefetch', 'preconnect', 'dns-prefetch', 'manifest'}


class Page(HTMLParser):
    "What a page holds: anchors, links, the resources that it loads, its style and script, and its text."

    def __init__(self, source: str):
        super().__init__()
        self.ids, self.links, self.resources, self.inline, self.words, self.inside = set(), [], [], [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        a = {k: v or '' for k, v in attrs}
        self.ids |= {a[k] for k in ('id', 'name') if a.get(k)}
        if tag == 'a' and a.get('href'): self.links.append(a['href'])
        if tag == 'link' and set(a.get('rel', '').split()) & LOADING_RELS: self.resources.append(a.get('href', ''))
        self.resources += [part.split()[0] for k in RESOURCES.get(tag, ()) if a.get(k)
                           for part in (a[k].split(',') if k == 'srcset' else [a[k]]) if part.strip()]
        if 'style' in a: self.inline.append(a['style'])
        if tag in ('script', 'style'): self.inside.append(tag)

    def handle_endtag(self, tag):
        if tag in ('script', 'style'): self.inside.pop()

    def handle_data(self, data): (self.inline if self.inside else self.words).append(data)

    @property
    def text(self) -> str: return squeezed(''.join(self.words))


def squeezed(text: str) -> str: return re.sub(r'\s+', '', text)


def is_remote(url: str) -> bool: return bool(re.match(r'\s*(https?:)?//', url))


def remote_resources(page: Page) -> list[str]:
    "What a page would load from another host; links that a reader follows are no resources."
    return [r for r in page.resources if is_remote(r)] + [u for text in page.inline for u in remote_in_code(text)]


def remote_in_code(text: str) -> list[str]:
    "Addresses on other hosts that CSS or a module script would load."
    return re.findall(r'''url\(\s*["']?(?:https?:)?//[^)]*\)|@import\s+["'][^"']*//[^"']*|\b(?:from|import)\s*\(?\s*["']https?://[^"']+''',
                      text)


def broken_links(pages: dict[str, Page], files: set[str]) -> list[str]:
    "Links between pages that lead to no file, or to an anchor that the page does not have."
    out = []
    for name, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc: continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(url.path))) if url.path else name
            if target in ('.', '') or link.split('#')[0].endswith('/'): target = posixpath.normpath(posixpath.join(target, 'index.html'))
            if target not in files: out.append(f'{name}: {link} leads nowhere')
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].ids:
                out.append(f'{name}: {link} has no anchor')
    return sorted(set(out))


@pytest.fixture(scope='session')
def build(tmp_path_factory):
    "A copy of the project in which the docs script has run, by its own command where there is make."
    copy = copy_project(tmp_path_factory.mktemp('site')/'cpqa')
    return copy, run_in(copy, *(['make', 'docs'] if shutil.which('make') else [sys.executable, '.ci/docs.py']))


@pytest.fixture(scope='session')
def site(build) -> Path:
    copy, done = build
    if not (copy/'_docs'/'index.html').exists(): pytest.fail(f'no site was built:\n{done.stdout}\n{done.stderr}', pytrace=False)
    return copy/'_docs'


@pytest.fixture(scope='session')
def pages(site) -> dict[str, Page]:
    return {p.relative_to(site).as_posix(): Page(p.read_text(encoding='utf-8')) for p in sorted(site.rglob('*.html'))}


def test_the_sidebar_and_the_notebooks_agree():
    assert docs.disagreements(docs.sidebar(yaml.safe_load((ROOT/'_quarto.yml').read_text(encoding='utf-8'))), NOTEBOOKS) == []
    assert len(docs.disagreements(['a.ipynb', 'b.ipynb', 'b.ipynb'], ['b.ipynb', 'c.ipynb'])) == 3


def test_the_docs_script_succeeds(build):
    _, done = build
    assert done.returncode == 0, f'{done.stdout}\n{done.stderr}'
    assert 'The site is in' in done.stdout


def body(page: Path) -> str:
    "What stands between the head, which knows all pages there are, and the ways to the page before and after."
    return page.read_text(encoding='utf-8').partition('<main ')[2].partition('</header>')[2].partition('<nav class="page-navigation">')[0]


def test_building_again_gives_the_same_site(build, site, tmp_path):
    "A sixth of it: in another process, whose sets have another order, in another folder, over what was left there by an older project."
    again = copy_project(tmp_path/'again')
    for n, path in enumerate(p for p in sorted((again/'nbs').rglob('*.ipynb')) if p.name != 'index.ipynb'):
        if n % 6: path.unlink()
    for left in ('_proc/renamed.ipynb', '_docs/renamed.html'):
        (again/left).parent.mkdir(exist_ok=True)
        (again/left).write_text('{}')
    done = run_in(again, sys.executable, '.ci/docs.py')
    found = {p.relative_to(again/'_docs').as_posix() for p in (again/'_docs').rglob('*') if p.is_file()}
    whole = {p.relative_to(site).as_posix() for p in site.rglob('*') if p.is_file()}
    assert found < whole and {n for n in whole - found
                              if not n.endswith('.html')} == set() and 'there is no such notebook' in done.stderr, done
    assert [name for name in sorted(found) if name.endswith('.html') and body(again/'_docs'/name) != body(site/name)] == []
    assert [name for name in sorted(found) if not name.endswith('.html') and name != 'search.json'
            and (again/'_docs'/name).read_bytes() != (site/name).read_bytes()] == []
    to_search = lambda folder: json.loads((folder/'search.json').read_text(encoding='utf-8'))
    assert to_search(again/'_docs') == [e for e in to_search(site) if e['href'].partition('#')[0] in found]
    assert len(found) > 20 and all(body(site/name) for name in found if name.endswith('.html'))


@cases('notebook', NOTEBOOKS)
def test_every_notebook_has_its_page(notebook, pages):
    assert notebook.replace('.ipynb', '.html') in pages


def test_no_link_is_broken(site, pages):
    problems = broken_links(pages, {p.relative_to(site).as_posix() for p in site.rglob('*') if p.is_file()})
    assert not problems, '\n'.join(problems)


def test_links_to_our_own_pages_stay_on_the_site(pages):
    assert [link for page in pages.values() for link in page.links if '/cpqa.github.io/' in link] == []


def test_no_page_shows_the_environment(pages, site):
    "A default value is printed on the page of its function: `os.environ` would bring all keys with it."
    assert [p.name for p in site.rglob('*.html') if re.search(r'environ\(\{', p.read_text(encoding='utf-8'))] == []


def test_no_page_loads_from_another_host(site, pages):
    found = [f'{name}: {r}' for name, page in pages.items() for r in remote_resources(page)]
    found += [f'{p.name}: {u}' for p in site.rglob('*.css') for u in remote_in_code(p.read_text(encoding='utf-8'))]
    assert found == []


def code_cells(notebook: str) -> tuple[list[str], list[str]]:
    "The sources of the hidden and of the ordinary code cells of a notebook."
    sources = [''.join(c['source']) for c in json.loads((ROOT/'nbs'/notebook).read_text(encoding='utf-8'))['cells'] if c[
        'cell_type'] == 'code']
    words = lambda s: set(re.findall(r'^#\|\s*([\w-]+)', s, re.M))
    plain = lambda s: '\n'.join(l for l in s.splitlines() if not l.startswith('#|')).strip()
    return [plain(s) for s in sources if 'hide' in words(s)], [plain(s) for s in sources if not words(s)]


@cases('notebook', NOTEBOOKS)
def test_hidden_cells_do_not_show_and_others_do(notebook, pages):
    hidden, ordinary = code_cells(notebook)
    page = pages[notebook.replace('.ipynb', '.html')]
    shown = squeezed('\n'.join(ordinary))
    assert [c for c in hidden if squeezed(c) in page.text and squeezed(c) not in shown] == []
    assert [c for c in ordinary if squeezed(c) not in page.text] == []


def test_a_record_shows_its_fields_its_methods_and_its_source(pages):
    page = pages['core/records.html']
    assert squeezed('class Document(Record, frozen=True):\n id: str') in page.text
    assert {'document', 'document.url', 'passage.of'} <= page.ids
    assert squeezed('cpqa/core/records.py, line') in page.text and '*args,**kwargs' not in page.text


def test_the_checks_find_what_they_look_for():
    bad = Page('<script src="https://a.example/x.js"></script><img src="//a.example/x.png"><link rel="stylesheet" '
               'href="http://a.example/x.css">'
               '<style>@import "https://a.example/y.css"; p { background: url(https://a.example/z.png) }</style>'
               '<script type="module">import m from "https://a.example/m.mjs"</script><a href="https://a.example">a link</a>')
    assert len(remote_resources(bad)) == 6
    two = {'a.html': Page('<a href="b/c.html#no">1</a><a href="nothing.html">2</a><a href="b/c.html#yes">3</a><a href="#top">4</a><p '
                          'id="top">'),
           'b/c.html': Page('<p id="yes"><a href="../a.html">5</a><a href="../">6</a>')}
    assert broken_links(two, {*two, 'index.html'}) == ['a.html: b/c.html#no has no anchor', 'a.html: nothing.html leads nowhere']


# ---- in a browser

@contextlib.contextmanager
def served(folder: Path):
    "Serve a folder on loopback: the address, and a list that fills with the paths that were asked for in vain."
    missing = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args): pass
        def send_error(self, code, *args, **kwargs):
            missing.append(f'{code} {self.path}')
            super().send_error(code, *args, **kwargs)

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try: yield f'http://127.0.0.1:{server.server_port}', missing
        finally:
            server.shutdown()
            thread.join()


def browse(url: str, profile: Path) -> tuple[str, list[str]]:
    "The page's DOM after its scripts have run, and what they wrote to the console; every host but loopback fails to resolve."
    command = [shutil.which('chromium'), '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
               '--disable-sync',
               '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', f'--user-data-dir={profile}',
               '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1', '--virtual-time-budget=5000', '--enable-logging=stderr',
               '--v=0',
               '--dump-dom', url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if 'CONSOLE' in line]


needs_chromium = pytest.mark.skipif(shutil.which('chromium') is None, reason='chromium is not installed')


@needs_chromium
@pytest.mark.parametrize('page', ['index.html', 'core/records.html', 'core/errors.html'])
def test_a_browser_has_nothing_to_complain_about(page, site, pages, tmp_path):
    with served(site) as (address, missing):
        dom, console = browse(f'{address}/{page}', tmp_path/'profile')
    assert (console, [m for m in missing if 'favicon' not in m]) == ([], [])
    title = re.search(r'<title>(.*?)</title>', dom)
    assert title and html.unescape(title[1]).endswith('cpqa')
    assert 'data-bs-theme' in dom                          # set by the site's own script, which has therefore run


@needs_chromium
def test_the_browser_would_complain(tmp_path):
    (tmp_path/'bad.html').write_text('<title>x</title><script>undefinedFunction()</script><script src="no.js"></script>')
    with served(tmp_path) as (address, missing): _, console = browse(f'{address}/bad.html', tmp_path/'profile')
    assert any('undefinedFunction' in line for line in console)
    assert '404 /no.js' in missing
