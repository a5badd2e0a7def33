#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# regression/jinja.sh PROGRAM PYTHON [SEED] [COUNT]: compares chat templates with Jinja2 and transformers on cases that are drawn from SEED:
# COUNT templates from a grammar, and COUNT / 20 conversations for each of the templates in golden/chat_templates. PROGRAM is
# build/release/regression/jinja_render (target jinja_render). PYTHON needs transformers and jinja2 from PyPI, otherwise the exit code is 77.
set -euo pipefail
usage='usage: regression/jinja.sh PROGRAM PYTHON [SEED] [COUNT]'
program=$(realpath "${1:?$usage}") python=${2:?$usage} seed=${3:-1000} count=${4:-2000}
"$python" -c 'import jinja2, transformers' 2> /dev/null || { echo "SKIPPED: $python has no jinja2 and transformers"; exit 77; }
cd "$(dirname "$0")/golden"
export TRANSFORMERS_VERBOSITY=error
"$python" - "$program" "$python" "$seed" "$count" << 'END_OF_SCRIPT'
import json
import re
import subprocess
import sys

program, python, seed, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
tokens = {name: d["tokens"] for name, d in json.load(open("chat_dialects.json"))["dialects"].items()}


def drawn(script, number):
    return [json.loads(line) for line in subprocess.run([python, script, seed, str(number)], check=True, capture_output=True, text=True).stdout.splitlines()]


cases = [({"template": c["template"], "variables": c["variables"]}, c["text"]) for c in drawn("jinja_draws.py", count)]
for c in drawn("chat_dialects.py", max(1, count // 20)):
    template = open(f"chat_templates/{c['dialect']}.jinja").read()
    for prompt, key in ((False, "rendered"), (True, "prompted")):
        cases.append(({"template": template, "line": c["line"], "tokens": tokens[c["dialect"]], "prompt": prompt}, c[key]))
cases = [c for c in cases if not (c[1] and re.search("object at 0x", c[1], re.I))]  # addresses of Python objects
lines = "".join(json.dumps(given) + "\n" for given, _ in cases)
results = subprocess.run([program], input=lines, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
assert len(results) == len(cases), "the program stopped early"
equal = refused = unsupported = different = 0
for (given, expected), result in zip(cases, map(json.loads, results)):
    if isinstance(result, dict):
        unsupported += 1
    elif result == expected:
        equal, refused = equal + (result is not None), refused + (result is None)
    else:
        different += 1
        if different <= 5:
            print(f"template {given['template']!r}\n  expected {expected!r}\n  rendered {result!r}")
print(f"{len(cases)} cases: {equal} texts are equal, both programs refuse {refused}, unsupported {unsupported}, different {different}")
sys.exit(1 if different or unsupported > len(cases) // 50 else 0)
END_OF_SCRIPT
