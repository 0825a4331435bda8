.PHONY: docs test export ci demo-vectors

docs:     # the site, into _docs/
	python .ci/docs.py

export:   # after changing a notebook: clean it, write cpqa/ anew, and what is said twice
	nbdev_clean
	nbdev_export
	python .ci/contents.py

demo-vectors:   # after changing the bi-encoder in cpqa/data/models, or the demo notes
	python .ci/demo_vectors.py

test:
	python -m pytest

ci:       # what a release must pass, in a virtual environment of its own
	bash .ci/run
