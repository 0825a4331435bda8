"""Everything about the package is in settings.ini; this file only hands it to setuptools."""
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

here = Path(__file__).parent
ini = ConfigParser(delimiters=['='])
ini.read(here / 'settings.ini', encoding='utf-8')
cfg = ini['DEFAULT']

suffix = '_requirements'
extras = {key.removesuffix(suffix): cfg[key].split() for key in cfg if key.endswith(suffix)}
extras['all'] = sorted({requirement for group in extras.values() for requirement in group})

setup(
    name=cfg['lib_name'],
    version=cfg['version'],
    description=cfg['description'],
    long_description=(here / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author=cfg['author'],
    author_email=cfg['author_email'],
    url=cfg['git_url'],
    license='Apache-2.0',
    license_files=['LICENSE'],
    keywords=cfg['keywords'],
    packages=find_packages(include=['cpqa', 'cpqa.*']),
    package_data={'cpqa': ['py.typed', 'data/*', 'data/models/*/*', 'data/words/*']},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg['requirements'].split(),
    extras_require=extras,
    entry_points={'console_scripts': cfg['console_scripts'].split(), 'nbdev': ['cpqa=cpqa._modidx:d']},
)
