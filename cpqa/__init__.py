"""Questions of cancer patients answered from PubMed, with quoted and checked evidence."""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpqa.answering.support import check_claim
    from cpqa.core.records import Answer, Document
    from cpqa.libraries import build_index
    from cpqa.pipeline import CancerQA

__all__ = ['Answer', 'CancerQA', 'Document', '__version__', 'build_index', 'check_claim']

# What stands here is imported when it is first asked for, so that `import cpqa` costs nothing.
_HOMES = {'Answer': 'cpqa.core.records', 'CancerQA': 'cpqa.pipeline', 'Document': 'cpqa.core.records', 'build_index': 'cpqa.libraries',
          'check_claim': 'cpqa.answering.support'}


def __getattr__(name: str) -> Any:
    if name not in _HOMES: raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    globals()[name] = found = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]: return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    "What `%load_ext cpqa` does: `%ask` and `%%ask` answer questions."
    from cpqa.magic import add_magics
    add_magics(shell)
