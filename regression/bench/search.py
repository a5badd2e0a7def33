# SPDX-License-Identifier: BSD-3-Clause
# The other side of search.sh. write FOLDER: token files of drawn text (Zipf) for both sides. time FOLDER BACKEND: index and search by bm25s on one
# thread, in processor seconds. same FOLDER: both sides found the same scores; ours have the factor k1 + 1.
import os
import sys
import time

import numpy as np

vocabulary, length, most, k1, b = 30000, 64, 10, 1.2, 0.75
command, folder = sys.argv[1:3]
database, queries = (os.path.join(folder, name) for name in ("database", "queries"))


def write(prefix, texts):
    count = len(texts)
    texts.astype(np.uint16).tofile(prefix + ".bin")
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + np.uint64(1).tobytes() + np.uint8(8).tobytes())
        file.write(np.uint64(count).tobytes() + np.uint64(count + 1).tobytes())
        file.write(np.full(count, length, np.int32).tobytes())
        file.write((np.arange(count, dtype=np.int64) * length * 2).tobytes() + np.arange(count + 1, dtype=np.int64).tobytes())


def read(prefix):
    return [list(map(int, text)) for text in np.fromfile(prefix + ".bin", dtype=np.uint16).reshape(-1, length)]


def seconds_of(run):
    begin = time.process_time()
    result = run()
    return time.process_time() - begin, result


if command == "write":
    random = np.random.default_rng(1)
    chance = 1 / np.arange(1, vocabulary + 1)
    for prefix, count in ((database, int(sys.argv[3])), (queries, int(sys.argv[4]))):
        write(prefix, random.choice(vocabulary, size=(count, length), p=chance / chance.sum()))
elif command == "same":
    ours = np.fromfile(os.path.join(folder, "scores.bin")).reshape(-1, most)
    theirs = np.load(os.path.join(folder, "scores.npy"))
    sys.exit(0 if np.allclose(ours, (k1 + 1) * theirs, rtol=1e-4) else 1)
else:
    import bm25s

    words = {str(i): i for i in range(vocabulary)}
    tokenized = lambda texts: bm25s.tokenization.Tokenized(ids=texts, vocab=words)
    texts, asked = tokenized(read(database)), tokenized([sorted(set(text)) for text in read(queries)])
    index = bm25s.BM25(method="lucene", k1=k1, b=b, backend=sys.argv[3])
    indexed, _ = seconds_of(lambda: index.index(texts, show_progress=False))
    find = lambda texts: index.retrieve(texts, k=most, show_progress=False, n_threads=1)
    find(tokenized(asked.ids[:2]))  # compiles the backend numba
    searched, (_, scores) = seconds_of(lambda: find(asked))
    np.save(os.path.join(folder, "scores.npy"), scores)
    print(f"index seconds: {indexed:.3f}\nqueries/s: {len(asked.ids) / searched:.1f}")
