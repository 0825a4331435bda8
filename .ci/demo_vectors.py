"""Writes cpqa/data/demo_vectors.npz: the demo notes' passages as vectors of the encoder that comes with cpqa, so that the first question
need not make them. Those that are there stay; others are made in 32 bits, so that it does not matter on which processor."""
from cpqa.libraries import DEMO_VECTORS
from cpqa.literature.demo_notes import demo_notes
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.retrieval.encoders import EmbeddedEncoder, KnownVectors, write_known
from cpqa.retrieval.vectors import embedded_text

texts = [embedded_text(p.title, p.text) for d in (n.document() for n in demo_notes()) for p in SentenceSplitter().split(d)]
write_known(DEMO_VECTORS, KnownVectors(EmbeddedEncoder('f32'), DEMO_VECTORS), texts)
print(f'{len(texts)} passages, {DEMO_VECTORS.stat().st_size/1e3:.0f} kB in {DEMO_VECTORS.name}')
