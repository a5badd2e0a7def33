#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes jinja_draws.json: templates drawn at random from a grammar, rendered by Jinja2 in the environment of transformers.

The grammar draws typed expressions (text, integers, real numbers, truth values, lists, dictionaries) with the filters, tests and methods that
src/jinja supports, and statements with all forms of white-space control. Needs transformers and jinja2 from PyPI.
    ./jinja_draws.py                  writes jinja_draws.json
    ./jinja_draws.py SEED COUNT       prints other cases, one JSON object per line, for regression/jinja.sh
"""
import json
import pathlib
import random
import sys
import warnings

import jinja2
import transformers
from transformers.utils.chat_template_utils import _cached_compile_jinja_template as compiled

warnings.simplefilter("ignore")  # Python warns of odd but valid expressions

VARIABLES = {
    "s": "Hello World", "t": "  a b\n c ", "u": "été ß Σ ΑΣ", "e": "", "sp": "<|im_start|>x<think>ab</think> y", "n": 3, "z": 0, "neg": -7, "f": 2.5,
    "b": True, "no": False, "none_": None, "l": [1, 2, 3], "ls": ["b", "a", "C", "a"], "le": [], "de": {}, "ds": {"x": "1", "A": "y", "m": "é"},
    "d": {"b": 1, "a": "x", "c": [1, {"q": None}], "items": "I"}, "mixed": [1, "a", None, 2.5, [1], {"k": "v"}],
    "msgs": [{"role": "user", "content": "hi <b>"},
             {"role": "assistant", "content": "<think>\nq\n</think>\n\nho\nhi",
              "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": [True, None], "z": "ü\"\\\n\u2028"}}}]},
             {"role": "tool", "content": "42"}, {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image"}]}],
}


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.loops = 0

    def one(self, *choices):
        return self.r.choice(choices)

    # ---- expressions; `d` is the number of levels left ----

    def text_of(self, d):
        if d <= 0:
            return self.one("s", "t", "u", "e", "sp", "'a'", "'b c'", "''", "'\\n'", "\"it's\"", "msgs[0].content", "msgs[1]['content']", "ds.x",
                            "ds['A']", "'x' 'y'", "s[0]", "'\\u00e9\\x41\\t'", "msgs[-2].role")
        x = self.text_of(d - 1)
        k = self.r.randrange(14)
        if k == 0:
            return x + " + " + self.text_of(d - 1)
        if k == 1:
            return self.any_of(d - 1) + " ~ " + self.any_of(d - 1)
        if k == 2:
            return f"({x})." + self.one(
                "strip()", "lstrip()", "rstrip()", "strip('ho a')", "upper()", "lower()", "title()", "capitalize()", "replace('l','L')",
                "replace('o','0',1)", "replace('','-')", "removeprefix('He')", "removesuffix('ld')", "lstrip('\\n')", "rstrip('\\n ')", "format(1,2)",
                "replace('\\n',' ')")
        if k == 3:
            return f"({x})[" + self.one("1:", "::-1", ":2", "-2:", "1:-1", "::2", ":", "n:", "::-2", "5:", ":n", "neg:", "z:n", "1:9:3") + "]"
        if k == 4:
            return f"({x})|" + self.one(
                "upper", "lower", "title", "capitalize", "trim", "trim('ho')", "string", "reverse", "indent", "indent(2)", "indent(2,true)",
                "indent('> ', blank=true)", "replace('l','L')", "replace('a','b',1)", "default('x')", "default('x',true)",
                "first|string", "last|string", "tojson", "tojson(ensure_ascii=true)", "list|join('.')",
                "batch(2)|map('join')|join('/')", "unique|join")
        if k == 5:
            return f"({self.list_of(d - 1)})|join(" + self.one("", "', '", "'|'", "n", "'-'") + ")"
        if k == 6:
            return x + " if " + self.truth_of(d - 1) + " else " + self.text_of(d - 1)
        if k == 7:
            return f"({self.any_of(d - 1)})|" + self.one("tojson", "string", "tojson(indent=2)", "tojson(separators=(',', ':'))",
                                                         "tojson(indent=4, ensure_ascii=false)")
        if k == 8:
            return self.one("'-'", "s", "'ab'", "', '") + ".join(" + self.one("ls", "['x','y']", "ds", "s", "ds.values()",
                                                                                "msgs|map(attribute='role')") + ")"
        if k == 9:
            return f"({x}).split(" + self.one("", "'o'", "' '", "'\\n'", "' ', 1", "'</think>'", "'o', 0") + ")[" + self.one("0", "-1") + "]"
        if k == 10:
            return f"'%s-%d|%5s|%-4s|%03d|%.2f' % ({self.any_of(d - 1)}, {self.integer_of(d - 1)}, 'ab', 'é', n, f)"
        if k == 11:
            return f"({x}) * " + self.one("2", "z", "n", "-1")
        if k == 12:
            return f"({self.any_of(d - 1)})|default({x}, true)|string"
        return f"({x})"

    def integer_of(self, d):
        if d <= 0:
            return self.one("n", "z", "neg", "1", "2", "10", "-3", "l[0]", "l|length", "d.b", "5", "true", "loop.index" if self.loops else "7")
        x = self.integer_of(d - 1)
        k = self.r.randrange(9)
        if k == 0:
            return "(" + x + self.one(" + ", " - ", " * ") + self.integer_of(d - 1) + ")"
        if k == 1:
            return "(" + x + self.one(" // ", " % ") + self.one("2", "3", "-2", "7", "n") + ")"
        if k == 2:
            return "(" + self.one(self.text_of(d - 1), self.list_of(d - 1)) + ")|" + self.one("length", "count")
        if k == 3:
            return f"({self.any_of(d - 1)})|int" + self.one("", "(5)", "(default=-1)")
        if k == 4:
            return f"({self.text_of(d - 1)})." + self.one("find('o')", "rfind('o')", "count('l')", "find('')", "find('l',3)", "count('')", "rfind('')",
                                                          "find('o',-3)", "find('o',1,5)")
        if k == 5:
            return "(l + [n])|" + self.one("max", "min", "sum", "first", "last")
        if k == 6:
            return "-" + self.one("n", "z", "3", "l[1]")
        if k == 7:
            return f"({x})|abs"
        return self.one("n**2", "2**10", "(7/2)|int", "(7/2)|round|int", "f|int", "(f*3)|round(1)|int", "l.index(2)", "ls.count('a')", "'0x1f'|int(0,16)")

    def real(self):
        return self.one("f", "1.5", "1e3", "0.1", "n/2", "7/neg", "f*n", "f|round", "(f*1.37)|round(2)", "2.675|round(2)", "0.5|round", "1.5|round",
                        "f|round(0,'floor')", "f|round(0,'ceil')", "'2.5'|float", "f//1", "neg%2.5", "1e16*1", "1.0e-7*1", "123456789.123*1", "3.0",
                        "2**-1", "1/3")

    def truth_of(self, d):
        if d <= 0:
            return self.one("b", "no", "true", "false", "none_", "undef", "s", "e", "le", "l", "msgs", "not b", "z", "n", "f")
        k = self.r.randrange(12)
        if k == 0:
            return "(" + self.truth_of(d - 1) + self.one(" and ", " or ") + self.truth_of(d - 1) + ")"
        if k == 1:
            return "not " + self.truth_of(d - 1)
        if k == 2:
            return "(" + self.integer_of(d - 1) + self.one(" < ", " <= ", " > ", " >= ", " == ", " != ") + self.one(self.integer_of(d - 1), self.real()) + ")"
        if k == 3:
            return "(" + self.text_of(d - 1) + self.one(" < ", " == ", " != ", " >= ", " in ", " not in ") + self.text_of(d - 1) + ")"
        if k == 4:
            return "(" + self.any_of(d - 1) + self.one(" in ", " not in ") + self.one("l", "ls", "mixed", "[1,'a']", "(1,none)") + ")"
        if k == 5:
            return "(" + self.text_of(d - 1) + self.one(" in ", " not in ") + self.one("d", "ds", "ls", "msgs[0]", "ds.keys()", "ds.values()") + ")"
        if k == 6:
            return "(" + self.any_of(d - 1) + " is " + self.one("", "not ") + self.one(
                "defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "false",
                "callable", "eq 1", "equalto('a')", "ne none", "in [1,2]", "in ls", "sameas none", "sameas true") + ")"
        if k == 7:
            return "(" + self.integer_of(d - 1) + " is " + self.one("odd", "even", "divisibleby 2", "divisibleby(3)", "gt 1", "lt 2", "ge 1", "le 3") + ")"
        if k == 8:
            return f"({self.text_of(d - 1)})." + self.one("startswith('H')", "endswith('d')", "startswith(('a','H'))", "isalpha()", "isupper()", "islower()",
                                                          "isspace()", "startswith('W',6)", "endswith('o',0,5)", "startswith('')", "isdigit()")
        if k == 9:
            return "(" + self.text_of(d - 1) + " is " + self.one("lower", "upper", "string") + ")"
        if k == 10:
            return "(" + self.any_of(d - 1) + self.one(" == ", " != ") + self.any_of(d - 1) + ")"
        return "(msgs[0]" + self.one(".role", "['role']", ".content", ".missing", ".tool_calls", ".keys", ".items", ".get('role')", ".get('x')",
                                      ".get('x', 1)", "['items']", ".update") + " is " + self.one("defined", "none", "string") + ")"

    def list_of(self, d):
        if d <= 0:
            return self.one("l", "ls", "le", "[1,'a']", "[]", "mixed", "range(3)", "range(1,8,3)", "range(3,0,-1)", "(1,2)", "msgs", "ls[1:]", "undef",
                            "d.keys()", "ds.values()", "ds.items()")
        x = self.list_of(d - 1)
        k = self.r.randrange(10)
        if k == 0:
            return "[" + ", ".join(self.any_of(d - 1) for _ in range(self.r.randint(0, 3))) + "]"
        if k == 1:
            return f"({x})|list + " + self.one("l", "ls", "[none]", "[]")
        if k == 2:
            return f"({x})|list|" + self.one(
                "list", "reverse|list", "select|list", "reject('none')|list", "select('string')|list", "reject('string')|list", "batch(2)|list",
                "batch(2,'f')|list", "slice(2)|list", "map('string')|list", "select('defined')|list", "map('default','q')|list", "reverse",
                "select('mapping')|map(attribute='role')|list", "select('in', l)|list")
        if k == 3:
            return f"({self.text_of(d - 1)})." + self.one(
                "split()", "split('o')", "split(' ',1)", "rsplit(' ',1)", "rsplit('a')", "splitlines()", "split('\\n')", "splitlines(true)",
                "partition(' ')", "rpartition('l')", "rsplit(none,1)", "split(none,1)", "split(maxsplit=1)")
        if k == 4:
            return "msgs|" + self.one(
                "map(attribute='role')|list", "map(attribute='content')|list", "map(attribute='tool_calls')|list", "map(attribute='x', default='D')|list",
                "selectattr('role')|list", "selectattr('role','equalto','user')|list", "rejectattr('role','==','user')|map(attribute='content')|list",
                "selectattr('tool_calls')|list", "selectattr('tool_calls','defined')|list", "rejectattr('tool_calls','defined')|list",
                "sort(attribute='role')|map(attribute='role')|list", "selectattr('role','in',['user','tool'])|map(attribute='role')|join(',')|list")
        if k == 5:
            return self.one(
                "ls|sort", "ls|sort(reverse=true)", "ls|sort(case_sensitive=true)", "l|sort(reverse=true)", "ls|unique|list", "ls|unique(true)|list",
                "ds|dictsort", "ds|dictsort(true)", "ds|dictsort(by='value')", "ds|dictsort(reverse=true)", "ds|items|list", "ds|list", "d|list",
                "d.keys()|list", "msgs|map(attribute='role')|unique|list", "ls|map('upper')|list", "ls|map('replace','a','Z')|list",
                "ls|select('equalto','a')|list", "l|select('odd')|list", "l|reject('gt',1)|list", "l|map('string')|map('length')|list", "ls|max", "ls|min")
        if k == 6:
            return f"(({x})|list)[" + self.one("1:", "::-1", ":2", "-2:", "1:-1", "::2", ":", "n:", ":neg") + "]"
        if k == 7:
            return f"({x} if {self.truth_of(d - 1)} else {self.list_of(d - 1)})"
        if k == 8:
            return f"({self.text_of(d - 1)})|list"
        return f"({x})|default([], true)"

    def dict_of(self, d):
        k = self.r.randrange(5)
        if k == 0:
            return "{'k': " + self.any_of(d - 1) + ", 'j': " + self.any_of(d - 1) + "}"
        if k == 1:
            return f"dict(ds, q={self.any_of(d - 1)})"
        if k == 2:
            return self.one("d", "ds", "de", "msgs[0]", "msgs[1].tool_calls[0].function.arguments")
        if k == 3:
            return "{1: 'a', true: 'b', 1.0: " + self.any_of(d - 1) + ", none: 2, " + self.text_of(d - 1) + ": 1}"
        return f"dict(a={self.any_of(d - 1)})"

    def any_of(self, d):
        k = self.r.randrange(12)
        if k <= 3:
            return self.text_of(d)
        if k <= 5:
            return self.integer_of(d)
        if k == 6:
            return self.real()
        if k == 7:
            return f"({self.truth_of(d)})"
        if k <= 9:
            return f"({self.list_of(d)})"
        return self.dict_of(d) if k == 10 else self.one("none", "none_", "undef", "true", "msgs[9]", "d.zz")

    # ---- statements ----

    def sign(self):
        return self.one("", "", "", "-", "-", "+")

    def tag(self, text):
        return "{%" + self.sign() + self.one(" ", "", " \n ", "  ") + text + " " + self.sign() + "%}"

    def plain(self):
        return self.one("", "", "", " ", "\n", "  \n", "a", "x\n  ", "\n\n", "<|im_start|>", "  b  ", "\t", "é\n", "\r\n", "\u00a0\n", "{ % }", "}}", "\u2003")

    def output(self, text):
        return "{{" + self.one("", "-", "+") + " " + text + " " + self.one("", "-") + "}}"

    def block(self, d):
        return "".join(self.plain() + self.statement(d - 1) + self.plain() for _ in range(self.r.randint(0, 2)))

    def loop(self, d):
        source = self.one("msgs", "l", "ls", "d", "s[:3]", "range(3)", "le", "undef", "d.items()", "msgs[1:]", "l|reverse", "mixed", "ds|dictsort",
                          "ds.items()", self.list_of(1), self.list_of(2))
        target = "m, k" if "items()" in source or ("dictsort" in source and "list" not in source) else "m"
        condition = " if " + self.one("m", "m is string", "m is not none", self.truth_of(0)) if self.r.random() < 0.25 else ""
        self.loops += 1
        body = self.block(d - 1)
        for _ in range(self.one(1, 1, 2, 3)):
            body += self.plain() + self.one(
                "{{ loop.index }}", "{{ loop.last }}", "{{ loop.first }}", "{{ loop.length }}", "{{ loop.revindex0 }}", "{{ loop.revindex }}",
                "{{ loop.index0 }}", "{{ loop.previtem }}", "{{ loop.nextitem is defined }}", "{{ loop.cycle('a','b') }}", "{{ loop.changed(m) }}", "{{ m }}",
                "{{ m.role }}", "{{ v }}", self.tag("set v = m") + "{{ v }}", self.tag("if loop.index0 == 1") + self.tag("break") + self.tag("endif"),
                self.tag("if loop.first") + self.tag("continue") + self.tag("endif"), "{{ m.content ~ '|' }}", "{{ loop }}", "{{ loop.depth0 }}",
                self.tag("if not loop.last") + ", " + self.tag("endif"))
        self.loops -= 1
        otherwise = self.tag("else") + "ELSE" if self.r.random() < 0.2 else ""
        return self.tag(f"for {target} in {source}{condition}") + body + otherwise + self.tag("endfor")

    def choice(self, d):
        text = self.tag("if " + self.truth_of(2)) + self.block(d - 1)
        if self.r.random() < 0.4:
            text += self.tag("elif " + self.truth_of(1)) + self.block(d - 1)
        if self.r.random() < 0.5:
            text += self.tag("else") + self.block(d - 1)
        return text + self.tag("endif")

    def statement(self, d):
        x = self.r.random()
        if x < 0.30 or d <= 0:
            return self.output(self.any_of(2))
        if x < 0.38:
            return self.tag("set v = " + self.any_of(2)) + self.plain() + "{{ v }}"
        if x < 0.40:
            return self.tag(f"set v, w = {self.any_of(1)}, {self.any_of(1)}") + self.plain() + "{{ v }}{{ w }}"
        if x < 0.55:
            return self.choice(d)
        if x < 0.78:
            return self.loop(d)
        if x < 0.84:
            return (self.tag("set ns = namespace(x=0, y='')") + self.tag("for i in l") + self.tag("set ns.x = ns.x + i") +
                    self.tag("set ns.y = ns.y ~ " + self.any_of(1)) + self.block(d - 1) + self.tag("endfor") + "{{ ns.x }}{{ ns.y }}")
        if x < 0.90:
            return (self.tag(f"macro mac(p, q={self.any_of(1)})") + self.block(d - 1) + "{{ p }}/{{ q }}" +
                    self.one("", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}") + self.tag("endmacro") +
                    "{{ mac(" + self.one(self.any_of(1), "1, q=2", "1,2", "", "q=3", "*[1,2]", "**{'p': 5}") + ") }}")
        if x < 0.92:
            return self.tag("set v" + self.one("", " | trim", " | upper | trim")) + self.block(d - 1) + self.tag("endset") + "{{ v }}"
        if x < 0.94:
            return self.tag("filter " + self.one("upper", "trim", "indent(2)", "replace('a','b')|upper")) + self.block(d - 1) + self.tag("endfilter")
        if x < 0.95:
            return self.tag("with v = " + self.any_of(1) + self.one("", ", w = v")) + self.block(d - 1) + "{{ v }}" + self.tag("endwith")
        if x < 0.97:
            return self.tag("raw").replace("+%}", "%}") + "{{ x }} {% y %}" + self.plain() + self.tag("endraw")
        if x < 0.98:
            return self.tag("generation") + self.block(d - 1) + self.tag("endgeneration")
        if x < 0.99:
            return (self.tag("macro cm()") + "<{{ caller(1) }}>" + self.tag("endmacro") + self.tag("call(arg) cm()") + "{{ arg }}" + self.block(d - 1) +
                    self.tag("endcall"))
        return "{#" + self.sign() + " c" + self.one("", " {{ x }} ", " - ") + self.sign() + "#}"

    def template(self):
        if self.r.random() < 0.5:
            escape = self.one("", "", "", "", "|safe", "|e", "|escape|string", "|forceescape", "|safe|upper|trim", "|escape|length")
            return "{{ (" + self.any_of(self.one(1, 2, 3, 3)) + ")" + escape + " }}"
        return self.plain() + "".join(self.statement(3) + self.plain() for _ in range(self.r.randint(1, 3)))


def case_of(seed):
    template = Grammar(seed).template()
    try:
        return {"template": template, "text": compiled(template).render(**VARIABLES)}
    except Exception:  # noqa: BLE001  any error of the template counts as a refusal
        return {"template": template, "text": None}


def main():
    if len(sys.argv) == 3:
        for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
            print(json.dumps({**case_of(seed), "variables": VARIABLES}))
        return
    cases = [case_of(seed) for seed in range(420)]
    cases = [c for c in cases if " at 0x" not in (c["text"] or "") and len(c["template"]) + len(c["text"] or "") < 1000]  # texts with addresses
    about = f"rendered by Jinja2 {jinja2.__version__} as transformers {transformers.__version__} sets it up; written by jinja_draws.py"
    text = json.dumps({"about": about, "variables": VARIABLES, "cases": cases}, indent=0, ensure_ascii=False)
    (pathlib.Path(__file__).parent / "jinja_draws.json").write_text(text + "\n")


main()
