"""Questions of cancer patients answered from PubMed, with quoted and checked evidence."""

__version__ = "0.1.0"
__all__ = ['CancerQA', '__version__']


def __getattr__(name):
    if name == 'CancerQA':
        from cpqa.pipeline import CancerQA
        return CancerQA
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
