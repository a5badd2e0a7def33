#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes chat_templates.json: chat templates, and conversations rendered with them by transformers.

Needs transformers and jinja2 from PyPI. Some templates are hand-written forms in common use. Others are drawn from a fixed seed: the same
form of a turn with different quotes, concatenation, white space control and key syntax. `format` is the same turn as a format string of
`data build --template`.
"""
import json
import pathlib
import random

from transformers.utils.chat_template_utils import render_jinja_template

tokens = {"bos_token": "<s>", "eos_token": "</s>"}
conversations = [
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "Be {brief}.\n"}, {"role": "user", "content": "a\\b 'c' \"d\""}, {"role": "assistant", "content": " yes "},
     {"role": "user", "content": ""}],
]
default = "{% set add_generation_prompt = add_generation_prompt|default(false) %}"
templates = [
    default + "{% for m in messages %}{{ ['<|im_start|>', m.role, '\\n', m.content, '<|im_end|>\\n']|join }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n' if add_generation_prompt }}",
    "{% for m in messages %}\n<|im_start|>{{ m['role'] }}\n{{ m[\"content\"] }}<|im_end|>\n{% endfor %}\n"
    "{% if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}\n",
    "{% for m in messages %}\n    {% if m.role in ['assistant', 'system', 'user'] %}\n<|{{ m.role }}|>\n{{ m.content ~ eos_token }}\n"
    "    {% endif %}\n{% endfor %}",
    "{%- for message in messages -%}\n    [{{ message[\"role\"] }}]: {{ message[\"content\"] }}{{ eos_token }}\n{% endfor -%}\n"
    "{%- if add_generation_prompt -%}\n    [assistant]: {% endif -%}",
]
formats = ["<|im_start|>{role}\\n{content}<|im_end|>\\n", "<|im_start|>{role}\\n{content}<|im_end|>\\n", "<|{role}|>\\n{content}</s>\\n",
           "[{role}]: {content}</s>\\n"]


def format_of(turn):
    """The format string of a turn."""
    escapes = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "{": "{{", "}": "}}"}
    special = {"role": "{role}", "content": "{content}", "eos_token": tokens["eos_token"]}
    return "".join(special.get(part) or "".join(escapes.get(c, c) for c in part) for part in turn)


def quoted(r, text):
    q = r.choice("'\"")
    body = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace(q, "\\" + q)
    return q + body + q


def written(r, parts):
    """Template text for these parts, in a random mixture of expressions and plain text."""
    out, joined = "", []

    def close():
        nonlocal out
        if joined:
            out += "{{" + r.choice(["", " ", "  "]) + r.choice([" + ", "+", " ~ "]).join(joined) + r.choice(["", " "]) + "}}"
            joined.clear()

    for part in parts:
        if part in ("role", "content"):
            joined.append(r.choice([f"message['{part}']", f'message["{part}"]', f"message.{part}"]))
        elif part == "eos_token":
            joined.append(part)
        elif r.random() < 0.4 and part.strip() == part and "{" not in part and "}" not in part:
            close()
            out += part  # plain text; white space at its edges could be removed by a tag
            continue
        else:
            joined.append(quoted(r, part))
        if r.random() < 0.4:
            close()
    close()
    return out


def drawn(seed):
    r = random.Random(seed)
    pieces = ["<|start|>", "<|end|>", "\n", "\t", ": ", "{", "}}", "\\", "it's", '"', "#", "[", "%"]

    def text():
        return "".join(r.choice(pieces) for _ in range(r.randint(0, 3)))

    before, middle, after = text(), text() + r.choice(["\n", ": "]), text()
    turn = [x for x in (before, "role", middle, "content", after) if x] + r.choice([[], ["eos_token"]])
    prompt = [x for x in (before, "assistant", middle) if x]
    tag = lambda name: r.choice(["{% ", "{%- "]) + name + r.choice([" %}", " -%}"])
    out = (default if r.random() < 0.3 else "") + tag("for message in messages") + written(r, turn) + tag("endfor")
    if r.random() < 0.7:
        out += r.choice(["", "\n"]) + tag("if add_generation_prompt") + written(r, prompt) + tag("endif") + r.choice(["", "\n"])
    return out, format_of(turn)


def main():
    cases = []
    for template, form in list(zip(templates, formats)) + [drawn(seed) for seed in range(200)]:
        rendered = render_jinja_template(conversations=conversations, chat_template=template, **tokens)[0]
        prompted = render_jinja_template(conversations=conversations, chat_template=template, add_generation_prompt=True, **tokens)[0]
        cases.append({"template": template, "format": form, "rendered": rendered, "prompted": prompted})
    import transformers
    text = {"about": f"rendered by transformers {transformers.__version__}; written by chat_templates.py", "tokens": tokens,
            "conversations": conversations, "cases": cases}
    (pathlib.Path(__file__).parent / "chat_templates.json").write_text(json.dumps(text, indent=0, sort_keys=True) + "\n")


main()
