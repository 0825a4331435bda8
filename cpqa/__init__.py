"""Questions of cancer patients answered from PubMed, with quoted and checked evidence."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ['CancerQA', '__version__']

if TYPE_CHECKING: from cpqa.pipeline import CancerQA   # loaded on first use, below


def __getattr__(name):
    if name == 'CancerQA':
        from cpqa.pipeline import CancerQA
        return CancerQA
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
