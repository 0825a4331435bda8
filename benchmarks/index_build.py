"""How long does building a library take, and how much memory?

    python benchmarks/index_build.py OUT FILES...

Runs `cpqa index build` as a process of its own and reads its peak memory from the system.
The reference, in the same run: sentence-transformers in float32 embedding 512 of the same documents, and as many whose title and text
have 230 to 270 tokens (of which a model reads 256), the length of a usual abstract; of these tokens a second are told as well.
"""
import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from common import peak_mb, save

from cpqa.literature.library import Library
from cpqa.passages.segmenters import token_offsets
from cpqa.retrieval.encoders import EmbeddedEncoder, SentenceTransformerEncoder, minilm_folder
from cpqa.retrieval.vectors import embedded_text


def rate(encoder, texts: list[str]) -> float:
    encoder.encode(texts[:32])
    start = time.perf_counter()
    encoder.encode(texts)
    return len(texts) / (time.perf_counter() - start)


def main(out: str, files: list[str]):
    start = time.perf_counter()
    subprocess.run([str(Path(sys.executable).parent / 'cpqa'), 'index', 'build', *files, '--out', out], check=True)
    seconds = time.perf_counter() - start
    peak = peak_mb(resource.RUSAGE_CHILDREN)
    library = Library(out)
    texts = [embedded_text(d.title, d.text) for d in islice(library, 0, None, max(1, len(library) // 512))]
    usual = list(islice((t for d in library if 230 <= len(token_offsets(t := embedded_text(d.title, d.text))) + 2 <= 270), 512))
    read = sum(min(256, len(token_offsets(t)) + 2) for t in usual) / len(usual)
    encoders = EmbeddedEncoder(), SentenceTransformerEncoder(minilm_folder())
    (ours, theirs), (ours_usual, theirs_usual) = ([rate(e, some) for e in encoders] for some in (texts, usual))
    save('index_build', {
        'files': [Path(f).name for f in files], 'counts': library.manifest.counts, 'vectors': library.manifest.parts['vectors']['vectors'],
        'seconds': round(seconds, 1), 'peak_memory_mb': peak, 'documents_per_second': round(len(library) / seconds, 1),
        'size_mb': round(sum(f.bytes for f in library.manifest.files.values()) / 1e6, 1),
        'encoder_texts_per_second': round(ours, 1), 'reference_sentence_transformers_texts_per_second': round(theirs, 1),
        'n_texts': len(texts), 'ratio_encoder_to_reference': round(ours / theirs, 2),
        'usual_abstracts': {'n': len(usual), 'tokens_read': round(read, 1), 'texts_per_second': round(ours_usual, 1),
                            'tokens_per_second': round(ours_usual * read), 'reference_texts_per_second': round(theirs_usual, 1),
                            'ratio_encoder_to_reference': round(ours_usual / theirs_usual, 2)}})


if __name__ == '__main__': main(sys.argv[1], sys.argv[2:])
