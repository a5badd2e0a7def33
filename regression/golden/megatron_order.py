#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes megatron_order.json: index arrays of small data sets in Megatron-LM's sample order, drawn by numpy's RandomState.

Needs Debian's python3-numpy (made with numpy 1.24.2).    ./megatron_order.py > megatron_order.json
"""
import json

import numpy


def document_index(documents, epochs, random, last_apart):
    if last_apart and epochs > 1:
        head = document_index(documents, epochs - 1, random, False)
        return numpy.concatenate((head, document_index(documents, 1, random, False)))
    index = numpy.tile(numpy.array(documents, dtype=numpy.int32), epochs)
    random.shuffle(index)
    return index


def sample_index(lengths, documents, samples, seq_len):
    """Start of each sample: (position in the document index, token offset), found by iterating over the documents."""
    index, position, offset = [(0, 0)], 0, 0
    for _ in range(samples):
        remaining = seq_len + 1
        while remaining != 0:
            here = lengths[documents[position]] - offset
            remaining -= here
            if remaining <= 0:
                offset += remaining + here - 1
                remaining = 0
            else:
                position += 1
                offset = 0
        index.append((position, offset))
    return index


def case(lengths, first, last, seq_len, seed, samples):
    documents = list(range(first, last))
    tokens = sum(lengths[first:last])
    epochs = 1
    while epochs * tokens < samples * seq_len + 1:
        epochs += 1
    full = ((epochs - 1) * tokens - 1) // seq_len
    per_epoch = (tokens - 1) // seq_len
    last_apart = epochs > 1 and samples - full < int(0.80 * per_epoch)
    random = numpy.random.RandomState(seed)
    documents = document_index(documents, epochs, random, last_apart)
    total = (epochs * tokens - 1) // seq_len
    starts = sample_index(lengths, documents, total, seq_len)
    head = numpy.arange(full if last_apart else total, dtype=numpy.uint32)
    random.shuffle(head)
    tail = numpy.arange(head.size, total, dtype=numpy.uint32)
    if tail.size:
        random.shuffle(tail)
    return {
        "lengths": lengths, "first": first, "last": last, "seq_len": seq_len, "seed": seed, "samples": samples,
        "epochs": epochs, "last_apart": bool(last_apart), "document_index": documents.tolist(),
        "sample_index": starts, "shuffle_index": head.tolist() + tail.tolist(),
    }


lengths = [int(n) for n in numpy.random.RandomState(5).randint(1, 40, size=90)]
lengths[7] = lengths[8] = 0
print(json.dumps([
    case(lengths, 0, 90, 16, 1234, 60),     # one epoch
    case(lengths, 3, 77, 8, 1234, 420),     # few samples of the last epoch are used: shuffled separately
    case(lengths, 3, 77, 8, 99, 640),       # ... many are used: shuffled together with the others
    case(lengths, 0, 90, 500, 4294967295, 7),  # samples that span many documents
]))
