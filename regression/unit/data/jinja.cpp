// SPDX-License-Identifier: BSD-3-Clause
// Templates render the same text as Jinja2 in the environment of transformers (golden/jinja_draws.json,
// chat_templates.json and chat_dialects.json, each written by the script of the same name). Templates that Jinja2
// refuses are refused. No template runs without limits.
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/chat_input.hpp"
#include "src/jinja/json_value.hpp"
#include "src/jinja/problem.hpp"
#include "src/jinja/template.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::testing::jinja_suite {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;  // texts of dictionaries depend on the order of their keys
using jinja::Value;
using jinja::Variables;

Json golden(const std::string& name) { return Json::parse(std::ifstream(GYR_SOURCE_DIR "/regression/golden/" + name)); }

std::string dialect(const std::string& name) { return contents(fs::path(GYR_SOURCE_DIR) / "regression/golden/chat_templates" / (name + ".jinja")); }

Variables variables_of(const Json& object, std::uint32_t source = 1) {
  const Value value = jinja::value_of_json(object.dump(), {source});
  Variables variables;
  for (const auto& [key, item] : value.dict()->items) variables.emplace_back(key.string()->text.bytes(), item);
  return variables;
}

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int between(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  const std::string& one_of(const std::vector<std::string>& all) { return all[std::size_t(between(0, int(all.size()) - 1))]; }

 private:
  std::mt19937 random_;
};

// The rendered text; empty if the template refuses.
std::optional<std::string> rendered(const std::string& source, Variables variables, std::time_t now = 0) {
  try {
    return jinja::Template(source, "t").render(std::move(variables), now, 0).bytes();
  } catch (const jinja::Problem&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::string> text_in(const Json& value) { return value.is_null() ? std::nullopt : std::optional(value.get<std::string>()); }

TEST(jinja, drawn_templates_equal_jinja2) {
  const Json all = golden("jinja_draws.json");
  EXPECT_GT(all.at("cases").size(), 350u);
  for (const Json& c : all.at("cases"))
    EXPECT_EQ(rendered(c.at("template"), variables_of(all.at("variables"))), text_in(c.at("text"))) << c.at("template");
}

TEST(jinja, uniform_chat_templates_equal_transformers) {
  const Json all = golden("chat_templates.json");
  EXPECT_GT(all.at("cases").size(), 200u);
  for (const Json& c : all.at("cases"))
    for (std::size_t i = 0; i < all.at("conversations").size(); ++i)
      for (const bool prompt : {false, true}) {
        Json variables = all.at("tokens");
        variables["messages"] = all.at("conversations")[i], variables["add_generation_prompt"] = prompt;
        EXPECT_EQ(rendered(c.at("template"), variables_of(variables)), text_in(c.at(prompt ? "prompted" : "rendered")[i])) << c.at("template");
      }
}

// Conversations with tools, reasoning, documents and lists as content, in the chat formats of 24 published models.
TEST(jinja, chat_formats_of_models_equal_transformers) {
  const Json all = golden("chat_dialects.json");
  EXPECT_GE(all.at("dialects").size(), 24u);
  int refused = 0;
  for (const auto& [name, d] : all.at("dialects").items()) {
    const jinja::Template source(dialect(name), name);
    for (const Json& c : d.at("cases"))
      for (const bool prompt : {false, true}) {
        const ChatInput input = read_chat_input(c.at("line").get<std::string>(), "messages", "role", "content");
        Variables variables = variables_of(d.at("tokens"), 0);
        for (const char* absent : {"tools", "documents"}) variables.emplace_back(absent, Value{jinja::None{}});
        for (const auto& [key, value] : input.variables) {
          std::erase_if(variables, [&, key = key](const auto& v) { return v.first == key; });
          variables.emplace_back(key, value);
        }
        variables.emplace_back("messages", jinja::list_value(input.messages));
        variables.emplace_back("add_generation_prompt", Value{prompt});
        auto expected = text_in(c.at("rendered"));
        if (prompt) expected = c.contains("prompt") ? std::optional(*expected + c.at("prompt").get<std::string>()) : text_in(c.at("prompted"));
        std::optional<std::string> text;
        try {
          text = source.render(variables, all.at("now").get<std::time_t>(), 0).bytes();
        } catch (const jinja::Problem&) {
        }
        EXPECT_EQ(text, expected) << name << "\n" << c.at("line");
        refused += !text;
      }
  }
  EXPECT_GT(refused, 5);
}

TEST(jinja, unsupported_constructs_are_named_with_line) {
  std::string many_names = "a", many_values = "a=0";
  for (int i = 0; i < 1000; ++i) many_names += fmt::format(", a{}", i), many_values += fmt::format(", a{}=0", i);
  const std::map<std::string, std::string> refused{
      {"a\n{% include 'x' %}", "line 2: the statement 'include' is not supported"},
      {"{% extends 'x' %}", "the statement 'extends'"},
      {"{{ x | nofilter }}", "line 1: there is no filter 'nofilter'"},
      {"{{ x | wordwrap }}", "the filter 'wordwrap' is not supported"},
      {"{{ x is notest }}", "there is no test 'notest'"},
      {"\n\n{% if x %}", "line 3: the block {% if %} is not closed; add {% endif %}"},
      {"{% endfor %}", "there is no statement 'endfor'"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops are not supported"},
      {"{{ 'a", "a string is not closed"},
      {"{{ x", "a tag is not closed; add }}"},
      {"{# x", "a comment is not closed"},
      {"{% raw %}", "is not closed; add {% endraw %}"},
      {"{{ x + }}", "an expression is expected, but the end of the tag follows"},
      {"{{ (x] }}", "']' has no opening bracket"},
      {"{% break %}", "'break' is outside of a loop"},
      {"{{ 99999999999999999999 }}", "outside of the supported integers of 64 bits"},
      {"{{ x $ y }}", "the character '$' is unexpected"},
      {std::string(300, '(') + "1", ""},
      {"{{ " + std::string(300, '(') + "1" + std::string(300, ')') + " }}", "nested deeper than 200 levels"},
      {"{% macro m(a, a) %}{% endmacro %}", "the parameter 'a' is given twice"},
      {"{{ " + std::string(256, 'a') + " }}", "line 1: a name has more than 255 letters"},
      {"\n{% macro m(" + many_names + ") %}{% endmacro %}", "line 2: a macro has more than 1000 parameters"},
      {"\n{{ m(" + many_values + ") }}", "line 2: a call has more than 1000 named arguments"},
      {"\xff", "not valid UTF-8 at byte 1"}};
  for (const auto& [text, part] : refused) {
    if (part.empty()) continue;
    const Error error = error_of([text = text] { jinja::Template(text, "model/chat_template.jinja"); });
    EXPECT_EQ(error.code, Exit::data) << text;
    EXPECT_TRUE(std::string(error.what()).starts_with("model/chat_template.jinja: the chat template ")) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << "\n" << error.what();
  }
}

TEST(jinja, errors_of_rendering_state_the_line) {
  const std::map<std::string, std::string> problems{
      {"\n{{ raise_exception('roles must alternate') }}", "line 2 of the chat template: roles must alternate"},
      {"{{ x + 'a' }}", "line 1 of the chat template: the variable 'x' is not defined"},
      {"{{ messages[0].name.first }}", "a value of type 'dict' has no attribute or item 'name'"},
      {"{{ 'a' + 1 }}", "the operator + does not apply to values of types 'str' and 'int'"},
      {"{{ [].append(1) }}", "is excluded, because it would change the value"}};
  for (const auto& [text, part] : problems) {
    std::string what;
    try {
      jinja::Template(text, "t").render(variables_of({{"messages", {{{"role", "user"}}}}}), 0, 0);
    } catch (const jinja::Problem& problem) {
      what = problem.what();
    }
    EXPECT_NE(what.find(part), std::string::npos) << part << "\n" << what;
  }
}

void expect_limited(const std::string& source) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(rendered(source, variables_of({{"x", "d"}})), std::nullopt) << source.substr(0, 1000);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, 20) << source.substr(0, 1000);  // one to two seconds on one core; a busy machine and sanitizers need more
}

// Templates whose work grows without bound in the loop's length, the text or the depth.
TEST(jinja, hostile_templates_end_within_seconds) {
  std::string nested, closed;
  for (int i = 0; i < 12; ++i) nested += fmt::format("{{% for a{} in range(100) %}}", i), closed += "{% endfor %}";
  const std::string hostile[] = {
      nested + "{{ a0 }}" + closed,
      "{% set ns = namespace(s='x') %}{% for i in range(100000) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l|list }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(90) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(90) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
      "{% set ns = namespace(l=(), m=()) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% set ns.m = (ns.m, ns.m) %}{% endfor %}{{ ns.l == "
      "ns.m }}",
      "{% set ns = namespace(l=()) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
      "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
      "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
      "{{ 'x' * 10000000000 }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ 'ab' | indent(10000000000) }}",
      "{{ range(1000000) | list }}",
      "{{ ('a' * 1000000) | replace('', 'b' * 1000) }}",
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.find('a' * 999 + 'b') }}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s[500000] }}{% endfor %}",
      "{{ 9 ** 99999999 }}",
      "{{ [1] * 100000000000 }}",
      "{{ 'a' | batch(100000000000, 'x') | list }}",
      "{{ [1] | slice(100000000000) | list }}"};
  for (const std::string& source : hostile) expect_limited(source);
}

// Templates whose steps are few, but large: long keys, names and arguments, and values that many lists share.
TEST(jinja, hostile_look_ups_end_within_seconds) {
  const std::string twice = "{% for i in range(100000) %}{% for j in range(100000) %}", end = "{% endfor %}{% endfor %}";
  const std::string long_key = "{% set k = 'a' * 10000000 %}{% set d = {k: 1} %}", pairs = "{% set d = dict(range(100000)|map('string')|batch(2)) %}";
  const std::string shared =
      "{% set ns = namespace(l=(), m=()) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% set ns.m = (ns.m, ns.m) %}{% endfor %}";
  std::string scopes = "{% set last = 1 %}", variables = "v0=0", space = "{% set ns = namespace() %}";
  for (int i = 1; i < 100; ++i) variables += fmt::format(", v{}=0", i);
  for (int i = 0; i < 150; ++i) scopes += "{% with " + variables + " %}";
  for (int i = 0; i < 1001; ++i) space += fmt::format("{{% set ns.a{} = 0 %}}", i);
  scopes += twice + "{{ last }}" + end;
  for (int i = 0; i < 150; ++i) scopes += "{% endwith %}";
  const std::string hostile[] = {long_key + twice + "{% if d[k] %}{% endif %}" + end,
                                 long_key + twice + "{% if d.get(k) %}{% endif %}" + end,
                                 long_key + twice + "{% if k in d %}{% endif %}" + end,
                                 long_key + twice + "{% if d == {k: 1} %}{% endif %}" + end,
                                 long_key + "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = ns.l + [{k: 1}] %}{% endfor %}",
                                 long_key + "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = ns.l + [dict(d)] %}{% endfor %}",
                                 pairs + "{% macro m() %}{{ kwargs|length }}{% endmacro %}" + twice + "{{ m(**d) }}" + end,
                                 shared + "{% for i in range(2) %}{{ loop.changed(ns.l if i else ns.m) }}{% endfor %}",
                                 shared + "{{ [ns.l, ns.m]|sort }}",
                                 twice + "{% if [1]|map(attribute='.' * 1000000)|list %}{% endif %}" + end,
                                 twice + "{% if [1]|sort(attribute=',' * 1000000) %}{% endif %}" + end,
                                 twice + "{% if strftime_now('%c' * 500) %}{% endif %}" + end,
                                 twice + "{% macro m() %}{{ i }}{% endmacro %}" + end,
                                 twice + "{% for k in [1] %}{% if loop.changed(i) %}{% endif %}{% endfor %}" + end,
                                 "{% set ns = namespace(l=[]) %}" + twice + "{% set ns.l = [range(100000)|map('string')|list, ns.l]|list %}" + end,
                                 "{% set s = (x ~ 'a') * 50000000 %}",
                                 scopes,
                                 space};
  for (const std::string& source : hostile) expect_limited(source);
}

// The time of reading a template is at most proportional to its size, apart from logarithms.
TEST(jinja, long_templates_are_read_within_seconds) {
  std::string macros, names;
  for (int i = 0; macros.size() < 900'000; ++i) macros += fmt::format("{{% macro m{}() %}}{{{{ x{} }}}}{{% endmacro %}}", i, i);
  for (int i = 0; names.size() < 900'000; ++i) names += fmt::format("a{}, ", i);
  const std::string sources[] = {macros,
                                 "{{ [" + names + "] }}",
                                 "{% for " + names + " in x %}{% endfor %}",
                                 "{{ '" + std::string(900'000, 'a') + "' }}",
                                 std::string(900'000, '\n') + "{{ x }}",
                                 "{{ x" + std::string(450'000, ' ') + "}}" + std::string(450'000, ' ') + "{%- if x %}{% endif %}"};
  for (const std::string& source : sources) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      jinja::Template(source, "t");
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Exit::data);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, 20) << source.substr(0, 100);
  }
}

// Values that refer to each other in a cycle, and long chains of values, are freed without deep recursion.
TEST(jinja, cycles_and_chains_of_values_are_freed) {
  for (const char* source :
       {"{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.l = [ns] %}{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}x",
        "{% set n = namespace(x=none) %}{% for i in range(90000) %}{% set k = namespace(x=n.x) %}{% set n.x = k %}{% endfor %}x",
        "{% set n = namespace(f=none) %}{% for i in range(50000) %}{% macro m() %}{{ prev }}{% endmacro %}{% set prev = n.f %}{% set n.f = m %}{% "
        "endfor %}x",
        "{% set n = namespace(l=none) %}{% for i in range(50000) %}{% set k = loop.changed(n.l, loop) %}{% set n.l = loop %}{% endfor %}x"})
    EXPECT_EQ(rendered(source, {}), "x") << source;
  EXPECT_EQ(
      rendered("{% set n = namespace(l=none) %}{% for i in range(90000) %}{% for x in [n.l] %}{% set n.l = loop %}{% endfor %}{% endfor %}", {}),
      std::nullopt);
}

// Characters of the data are marked as data wherever filters and methods move them, and all other text is not.
TEST(jinja, origin_of_data_survives_filters_and_methods) {
  const std::string data = "\ue000\ue001 \ue002\n\ue003\ue004";  // private-use characters, which no template writes
  const auto is_data = [](char32_t c) { return c >= 0xe000 && c <= 0xe0ff; };
  Dice dice(seed_of_run());
  const std::vector<std::string> steps{"|trim",
                                       ".strip()",
                                       "[1:]",
                                       "[::-1]",
                                       "|upper",
                                       ".split('\\n')[0]",
                                       "|replace('\\n', 'x')",
                                       "|indent",
                                       " ~ 'ab'",
                                       "|tojson",
                                       "|list|join('-')",
                                       ".replace(' ', 'zz')",
                                       "|default('q')",
                                       ".splitlines()|join('+')",
                                       "|string",
                                       ".format(1)",
                                       " + 'c'",
                                       "|reverse",
                                       "|escape|string",
                                       ".partition(' ')[2]",
                                       "|title",
                                       ".rsplit(' ', 1)|last",
                                       "|batch(2)|map('join')|join('/')",
                                       "|capitalize"};
  const Variables variables = variables_of({{"x", data}}, 7);
  int marked = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::string source = "x";
    for (int n = dice.between(1, 5); n > 0; --n) source = "(" + source + dice.one_of(steps) + ")";
    source = "{% set y %}<{{ " + source + " }}>{% endset %}{{ '%s|%s' % (y, [x]) }}";
    jinja::Text text;
    try {
      text = jinja::Template(source, "t").render(variables, 0, 0);
    } catch (const jinja::Problem&) {
      continue;  // a step that does not fit
    }
    std::size_t run = 0;
    for (std::size_t at = 0; at < text.size(); at += character_at(text.bytes(), at).length) {
      while (text.runs()[run].end <= at) ++run;
      const char32_t c = character_at(text.bytes(), at).point;
      const bool from_message = text.runs()[run].origin.source == 7;
      static const std::string derived = " \n\\nNuUeE01234";  // white space of the data, and parts of escapes of its characters
      if (is_data(c)) {
        EXPECT_TRUE(from_message) << source;
        ++marked;
      } else if (from_message) {
        EXPECT_TRUE(c < 0x80 && derived.find(char(c)) != std::string::npos) << source << " " << int(c);
      }
    }
  }
  EXPECT_GT(marked, 1000);
}

// Every damaged template is refused with Exit::data, or renders, or fails with a problem.
TEST(jinja, damaged_templates_are_refused_or_rendered) {
  const Json all = golden("chat_dialects.json");
  Dice dice(seed_of_run());
  int refused = 0, rendered_count = 0, failed = 0;
  for (const auto& [name, d] : all.at("dialects").items()) {
    const std::string source = dialect(name);
    const ChatInput input = read_chat_input(d.at("cases")[0].at("line").get<std::string>(), "messages", "role", "content");
    for (int trial = 0; trial < 60; ++trial) {
      std::string other = source;
      for (int n = dice.between(1, 3); n > 0; --n) {
        const auto at = std::size_t(dice.between(0, int(other.size()) - 1));
        if (dice.between(0, 1)) other.erase(at, std::size_t(dice.between(1, 6)));
        else
          other.insert(at, dice.one_of(std::vector<std::string>{"{{", "}}", "{%", "%}", "-", "'", "(", ")", "[", "|", ".", "not ", " if ", "\\", "{#",
                                                                "set"}));
      }
      try {
        Variables variables = variables_of(d.at("tokens"), 0);
        variables.emplace_back("messages", jinja::list_value(input.messages));
        jinja::Template(other, "t").render(variables, 0, 0);
        ++rendered_count;
      } catch (const Error& error) {
        EXPECT_EQ(error.code, Exit::data) << other << "\n" << error.what();
        ++refused;
      } catch (const jinja::Problem& problem) {
        EXPECT_LT(std::string_view(problem.what()).size(), 3000u);
        ++failed;
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(rendered_count, 100);
  EXPECT_GT(failed, 10);
}

// As in Jinja2, a turn that `break` or `continue` ends does not count.
TEST(jinja, loop_without_completed_turn_runs_its_else) {
  const auto loop = [](const std::string& body) { return rendered("{% for i in [1, 2] %}" + body + "{% else %}E{% endfor %}", {}); };
  EXPECT_EQ(loop("{% continue %}"), "E");
  EXPECT_EQ(loop("x{% break %}"), "xE");
  EXPECT_EQ(loop("{% if i == 2 %}{% continue %}{% endif %}x"), "x");
  EXPECT_EQ(loop("{% if i == 1 %}{% continue %}{% endif %}x"), "x");
}

TEST(jinja, time_formats_equal_python) {
  setenv("TZ", "UTC", 1);
  tzset();
  EXPECT_EQ(rendered("{{ strftime_now('%Y-%m-%d|%d %b %Y|%B %-d|%H:%M:%S|%j|%A|%%|%Z%z') }}", {}, 1722000000),
            "2024-07-26|26 Jul 2024|July 26|13:20:00|208|Friday|%|");
  EXPECT_EQ(rendered("{{ strftime_now('%f') }}", {}), std::nullopt);
  unsetenv("TZ");
  tzset();
}

}  // namespace
}  // namespace gyr::testing::jinja_suite
