#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes chat_dialects.json: conversations drawn from a fixed seed, rendered by transformers with the templates in chat_templates/.

Each of these templates was written for this project. It gives the chat format of a published model: the same special tokens and layout.
Together the templates use all constructs of chat templates. Needs transformers and jinja2 from PyPI; their versions are recorded in the file.
    ./chat_dialects.py                    writes chat_dialects.json
    ./chat_dialects.py SEED COUNT         prints other cases, one JSON object per line, for regression/jinja.sh

A case has: `line`, the conversation as a line of JSON; `rendered` and `prompted`, the text without and with the generation prompt (null if
the template refuses the conversation; `prompt` is the part of `prompted` after `rendered`); `learned`, the text that the assistant's replies
add, up to the token that closes a reply, computed from the difference of prefixes (null if the prefixes of the conversation are rendered
differently), or the text of generation blocks.
"""
import json
import pathlib
import random
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils as utils

here = pathlib.Path(__file__).parent
NOW = 1722000000  # 26 July 2024, 13:20 UTC


class FixedTime(utils.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


utils.datetime = FixedTime

im = ["<|im_start|>", "<|im_end|>"]
DIALECTS = {  # special tokens; the closing one first. system, tools, ids: of 9 characters for tool calls, parts: content as a list
    "chatml": dict(closing="<|im_end|>", specials=im, system=True),
    "command": dict(closing="<|END_OF_TURN_TOKEN|>", system=True, parts=True, documents=True, bos="<BOS_TOKEN>",
                    specials=["<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"]),
    "deepseek_r1": dict(closing="<｜end▁of▁sentence｜>", system=True, thinking=True, bos="<｜begin▁of▁sentence｜>",
                        specials=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]),
    "deepseek_v3": dict(closing="<｜end▁of▁sentence｜>", system=True, tools=True, bos="<｜begin▁of▁sentence｜>",
                        specials=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>",
                                  "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>",
                                  "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜tool▁sep｜>"]),
    "falcon_h1": dict(closing="<|im_end|>", specials=["<|begin_of_text|>"] + im, system=True, tools=True, bos="<|begin_of_text|>"),
    "gemma2": dict(closing="<end_of_turn>", specials=["<bos>", "<start_of_turn>", "<end_of_turn>"], bos="<bos>"),
    "gemma3": dict(closing="<end_of_turn>", specials=["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"], bos="<bos>", system=True,
                   parts=True),
    "generation": dict(closing="<|im_end|>", specials=im, system=True, reasoning=True),
    "gpt_oss": dict(closing="<|return|>", system=True, tools=True, reasoning=True, effort=True,
                    specials=["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"]),
    "granite": dict(closing="<|end_of_text|>", specials=["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"], system=True, documents=True,
                    only_tools=True, controls=True),
    "hermes": dict(closing="<|im_end|>", specials=["<|begin_of_text|>"] + im, system=True, tools=True, bos="<|begin_of_text|>"),
    "llama2": dict(closing="</s>", specials=["<s>", "</s>"], bos="<s>", eos="</s>", system=True),
    "llama3": dict(closing="<|eot_id|>", specials=["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
                   bos="<|begin_of_text|>", system=True),
    "llama31": dict(closing="<|eot_id|>", bos="<|begin_of_text|>", system=True, tools=True, one_call=True, builtin=True,
                    specials=["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"]),
    "mistral": dict(closing="</s>", bos="<s>", eos="</s>", system=True, tools=True, ids=True,
                    specials=["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
                              "[/TOOL_RESULTS]"]),
    "mistral_small": dict(closing="</s>", bos="<s>", eos="</s>", system=True, parts=True,
                          specials=["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]"]),
    "mixtral": dict(closing="</s>", specials=["<s>", "</s>"], bos="<s>", eos="</s>"),
    "nemotron_h": dict(closing="<SPECIAL_12>", specials=["<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>"], system=True, tools=True, thinking=True),
    "phi3": dict(closing="<|end|>", specials=["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"], eos="<|endoftext|>", system=True),
    "phi4_mini": dict(closing="<|end|>", specials=["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>", "<|tool|>", "<|/tool|>"],
                      eos="<|endoftext|>", system=True, system_tools=True),
    "qwen25": dict(closing="<|im_end|>", specials=im, system=True, tools=True),
    "qwen3": dict(closing="<|im_end|>", specials=im, system=True, tools=True, reasoning=True, thinking=True, enable=True),
    "tulu": dict(closing="</s>", specials=["<s>", "</s>"], bos="<s>", eos="</s>", system=True),
    "zephyr": dict(closing="</s>", specials=["<s>", "</s>"], bos="<s>", eos="</s>", system=True),
}
PIECES = ["hello", " world", "the falcon", ".", ",", "?", "\n", "\n\n", "  ", " ", "\t", "é", "Größe", "東京", "😀", "«x»", "{", "}}", "{{ x }}", "{% y %}",
          "\\", "\\n", "'", '"', "<b>", "&", "1", "42.5", "<|im_end|>", "</s>", "<think>", "</think>", "[INST]", "<|end|>", "/think", "\u00a0", "\u2028",
          "<|eot_id|>", "e\u0301", "\u200b", "0x1F", "ﬁ", "İ", "null", "#"]
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Reads the weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "A \"city\""}, "days": {"type": "integer", "default": 3}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "sum_up", "description": "Adds numbers — été", "parameters": {
        "type": "object", "properties": {"values": {"type": "array", "items": {"type": "number"}}, "unit": {"type": "string", "enum": ["m", "s"]},
                                         "deep": {"type": "object", "properties": {"flag": {"type": "boolean"}, "rows": {"type": "array", "items": {
                                             "type": "array", "items": {"type": "string"}}}}, "required": ["flag"]},
                                         "either": {"oneOf": [{"type": "string", "default": "a"}, {"type": "integer", "description": "a number"}]},
                                         "maybe": {"type": ["string", "null"], "description": "or none"}},
        "required": ["values", "unit"]}, "return": {"type": "number"}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]


class Draw:
    def __init__(self, seed, dialect):
        self.r, self.d = random.Random(seed), dialect

    def text(self, longest=6):
        return "".join(self.r.choice(PIECES) for _ in range(self.r.randint(0, longest)))

    def content(self, user):
        if user and self.d.get("parts") and self.r.random() < 0.4:
            return [self.r.choice([{"type": "text", "text": self.text()}, {"type": "image"}]) for _ in range(self.r.randint(1, 3))]
        return self.text()

    def value(self, depth=2):
        kind = self.r.randrange(8 if depth else 6)
        if kind < 2:
            return self.text(3)
        if kind < 6:
            return [self.r.randint(-5, 10**12), self.r.choice([0.5, -2.25, 1e20, 1e-7, 3.0, 0.1]), self.r.random() < 0.5, None][kind - 2]
        if kind == 6:
            return [self.value(depth - 1) for _ in range(self.r.randint(0, 3))]
        return {self.text(2): self.value(depth - 1) for _ in range(self.r.randint(0, 3))}

    def calls(self):
        count = 1 if self.d.get("one_call") or self.r.random() < 0.6 else 2
        calls = []
        for _ in range(count):
            call = {"type": "function", "function": {"name": self.r.choice(["weather", "sum_up", "now"]),
                                                     "arguments": {f"k{i}": self.value() for i in range(self.r.randint(0, 3))}}}
            if self.d.get("ids"):
                call = {"id": "".join(self.r.choice("abc0123456") for _ in range(9)), **call}
            calls.append(call)
        return calls

    def assistant(self):
        message = {"role": "assistant", "content": self.text()}
        if self.d.get("thinking") and self.r.random() < 0.5:
            message["content"] = "<think>\n" + self.text(3) + "\n</think>\n\n" + message["content"]
        if self.d.get("reasoning") and self.r.random() < 0.4:
            message[self.r.choice(["reasoning_content", "thinking", "reasoning"])] = self.text(4)
        return message

    def messages(self):
        messages = []
        if self.d.get("system") and self.r.random() < 0.5:
            messages.append({"role": "system", "content": self.text()})
            if self.d.get("system_tools") and self.r.random() < 0.5:
                messages[0]["tools"] = json.dumps(self.r.sample(TOOLS, 1))
        for _ in range(self.r.randint(1, 3)):
            messages.append({"role": "user", "content": self.content(True)})
            while self.d.get("tools") and self.r.random() < 0.4:
                calls = self.calls()
                message = {"role": "assistant", "tool_calls": calls}
                extra = self.r.randrange(4)
                if extra == 0:
                    message["content"] = self.text()
                elif extra == 1:
                    message = {"role": "assistant", "content": None, "tool_calls": calls}
                elif extra == 2 and self.d.get("reasoning"):
                    message["reasoning_content"] = self.text(3)
                messages.append(message)
                for call in calls:
                    messages.append({"role": "tool", "content": self.text()} | ({"tool_call_id": call["id"]} if self.d.get("ids") else {}))
            messages.append(self.assistant())
        if self.r.random() < 0.3:
            messages.pop()
        if self.r.random() < 0.06:
            messages.insert(self.r.randrange(len(messages) + 1), self.r.choice([{"role": "user", "content": "again"}, {"role": "system", "content": "late"}]))
        return messages

    def row(self):
        row = {"id": self.r.randint(0, 99), "messages": self.messages()}
        if (self.d.get("tools") or self.d.get("only_tools")) and self.r.random() < 0.6:
            row["tools"] = self.r.sample(TOOLS, self.r.randint(1, 3))
        if self.d.get("documents") and self.r.random() < 0.5:
            row["documents"] = [{"doc_id": i, "title": self.text(2), "text": self.text(4)} for i in range(self.r.randint(1, 2))]
        more = {}
        if self.d.get("enable") and self.r.random() < 0.5:
            more["enable_thinking"] = self.r.random() < 0.5
        if self.d.get("effort") and self.r.random() < 0.5:
            more["reasoning_effort"] = self.r.choice(["low", "high"])
        if self.d.get("builtin") and self.r.random() < 0.3:
            more["builtin_tools"] = ["code_interpreter", "weather"]
        if self.d.get("builtin") and self.r.random() < 0.3:
            more["tools_in_user_message"] = False
        if self.d.get("controls") and self.r.random() < 0.5:
            more["controls"] = self.r.choice([{"length": "long"}, {"citations": True, "hallucinations": True}, {}])
        if more:
            row["chat_template_kwargs"] = more
        return row


def renderer(template, dialect, row):
    tokens = {name + "_token": dialect[name] for name in ("bos", "eos") if name in dialect}
    more = row.get("chat_template_kwargs", {})

    def render(count, prompt, blocks=False):
        messages = utils._normalize_chat_messages(row["messages"][:count])
        try:
            text, spans = utils.render_jinja_template(conversations=[messages], tools=row.get("tools"), documents=row.get("documents"),
                                                      chat_template=template, add_generation_prompt=prompt, return_assistant_tokens_mask=blocks,
                                                      **{**tokens, **more})
        except Exception:  # noqa: BLE001  any error of the template counts as a refusal
            return None
        return "".join(text[0][a:b] for a, b in spans[0]) if blocks else text[0]

    return render


def learned_text(render, row, rendered, closing, generation):
    """The text that is learned, or null."""
    count = len(row["messages"])
    if generation:
        return render(count, False, blocks=True)
    learned = ""
    for i, message in enumerate(row["messages"]):
        if message["role"] != "assistant":
            continue
        before, after = render(i, True), render(i + 1, False)
        if not before or not after or not (after.startswith(before) and rendered.startswith(after)):
            return None
        reply = after[len(before):]
        if closing not in reply:
            return None
        learned += reply[:reply.rindex(closing) + len(closing)]
    return learned


def case_of(name, seed):
    dialect = DIALECTS[name]
    template = (here / "chat_templates" / f"{name}.jinja").read_text()
    row = Draw(f"{name} {seed}", dialect).row()
    render = renderer(template, dialect, row)
    rendered = render(len(row["messages"]), False)
    learned = learned_text(render, row, rendered, dialect["closing"], "{%- generation" in template) if rendered is not None else None
    return {"line": json.dumps(row, ensure_ascii=False), "rendered": rendered, "prompted": render(len(row["messages"]), True), "learned": learned}


def shortened(case):
    """The case with `prompt`, the text after `rendered`, instead of `prompted` where this is possible."""
    if case["prompted"] is not None and case["prompted"].startswith(case["rendered"]):
        case["prompt"] = case.pop("prompted")[len(case["rendered"]):]
    return case


def main():
    if len(sys.argv) == 3:
        for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
            for name in DIALECTS:
                print(json.dumps({"dialect": name, **case_of(name, seed)}))
        return
    dialects = {}
    for name, dialect in DIALECTS.items():
        tokens = {key + "_token": dialect[key] for key in ("bos", "eos") if key in dialect}
        dialects[name] = {"tokens": tokens, "specials": dialect["specials"], "closing": dialect["closing"],
                          "cases": [shortened(case_of(name, seed)) for seed in range(8)]}
    about = f"rendered by transformers {transformers.__version__} and Jinja2 {jinja2.__version__}; written by chat_dialects.py"
    (here / "chat_dialects.json").write_text(json.dumps({"about": about, "now": NOW, "dialects": dialects}, indent=0, sort_keys=True, ensure_ascii=False) + "\n")


main()
