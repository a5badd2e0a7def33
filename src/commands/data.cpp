// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon data build TEXT... PREFIX: tokenizes text into PREFIX.bin and PREFIX.idx, with a loss mask for prompts with
// responses and for pairs, with labels for classification examples, and with fields for prompts of reinforcement
// learning. Under mpiexec the ranks share the work.
// gyrfalcon data info PREFIX: summarises and checks token files.
// gyrfalcon data info DECK.yaml: states how often a run reads each of its corpora.
// gyrfalcon data media: data_media.cpp.
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>

#include "kernels/base/printable.hpp"
#include "modules/objectives/classes.hpp"
#include "src/base/file_pattern.hpp"
#include "src/base/quantity.hpp"
#include "src/commands/command.hpp"
#include "src/commands/data_media.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/commands/documents_option.hpp"
#include "src/commands/guard.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/template_option.hpp"
#include "src/commands/tokenizer_file.hpp"
#include "src/data/builder.hpp"
#include "src/data/corpus_advice.hpp"
#include "src/data/corpus_summary.hpp"
#include "src/data/prompts.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/parallel/grid.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/transfer.hpp"
#include "src/train/feed.hpp"

namespace gyr {

namespace {

struct BuildArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  DocumentsOption documents;
  ConversationOption conversation;
  std::string classes, tags, source;
  bool pairs = false, prompts = false, no_end = false, special = false, overwrite = false;

  // True if each text is a sample of its own and is encoded like a prompt.
  bool complete() const { return labelled() || !source.empty(); }
  bool labelled() const { return !classes.empty() || !tags.empty(); }
};

// Class names: from a comma-separated list, or generated for a number of classes.
std::shared_ptr<const LabelledFormat> labelled_of(const BuildArguments& a) {
  const char* const option = a.tags.empty() ? "--classes" : "--tags";
  const std::string& text = a.tags.empty() ? a.classes : a.tags;
  std::vector<std::string> names;
  if (text.find_first_not_of("0123456789") == text.npos && text.size() < 8) {
    names = numbered_classes(std::stoll(text));
  } else {
    std::istringstream list(text);
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  }
  const bool differ = std::set<std::string>(names.begin(), names.end()).size() == names.size() && std::count(names.begin(), names.end(), "") == 0;
  require(names.size() > 1 && Index(names.size()) <= most_classes && differ, Exit::usage,
          "{} {}: must be 2 to {} different names separated by commas, or a number of classes", option, printable(text), most_classes);
  return std::make_shared<LabelledFormat>(LabelledFormat{std::move(names), !a.tags.empty()});
}

// Sets the rule of JSON lines, which `option` reads.
void set_json_lines(DocumentFormat& format, const BuildArguments& a, const char* option) {
  using Rule = DocumentFormat::Rule;
  require(format.rule == Rule::automatic || format.rule == Rule::json_lines, Exit::usage, "{} reads JSON lines, not --documents {}", option,
          a.documents.rule);
  require(a.documents.separator.empty(), Exit::usage, "--separator does not apply to the JSON lines of {}", option);
  format.rule = Rule::json_lines;
}

// `tokenizer`: null if none is given, so that all prompts must be token ids.
DocumentFormat prompts_format(const BuildArguments& a, const Tokenizer* tokenizer, std::time_t now) {
  for (const auto& [option, given] : {std::pair("--pairs", a.pairs), std::pair("--classes", !a.classes.empty()), std::pair("--tags", !a.tags.empty()),
                                      std::pair("--source", !a.source.empty()), std::pair("--special", a.special), std::pair("--no-end", a.no_end)})
    require(!given, Exit::usage, "--prompts cannot be combined with {}{}", option, a.no_end ? ", because no end token is appended to a prompt" : "");
  require(tokenizer || a.conversation.text().empty(), Exit::usage, "--template formats texts, which need --tokenizer FILE");
  DocumentFormat format = a.documents.format();
  set_json_lines(format, a, "--prompts");
  auto prompts = std::make_shared<PromptFormat>();
  prompts->tokenizer = tokenizer;
  if (tokenizer) prompts->chat = a.conversation.format(*tokenizer, now);
  if (a.documents.key != DocumentsOption().key) prompts->key = a.documents.key;
  format.prompts = std::move(prompts);
  return format;
}

DocumentFormat format_of(const BuildArguments& a, const Tokenizer& tokenizer, std::time_t now) {
  DocumentFormat format = a.documents.format();
  format.conversation = a.conversation.format(tokenizer, now);
  if (a.labelled()) format.labelled = labelled_of(a);
  format.pairs = a.pairs, format.source_key = a.source;
  require(!a.pairs || (!format.conversation && !format.labelled), Exit::usage, "--pairs cannot be combined with --template, --classes or --tags");
  require(a.source.empty() || !(a.pairs || format.conversation || format.labelled), Exit::usage,
          "--source cannot be combined with --pairs, --template, --classes or --tags");
  require(a.source.empty() || a.source != format.key, Exit::usage, "--source {}: this is also the key of the target text; set that one with --key",
          a.source);
  if (!format.conversation && !format.labelled && !format.pairs && a.source.empty()) return format;
  const char* const option = !a.source.empty()     ? "--source"
                             : format.pairs        ? "--pairs"
                             : format.conversation ? "--template"
                             : a.tags.empty()      ? "--classes"
                                                   : "--tags";
  require(!format.conversation || !format.labelled, Exit::usage, "--template cannot be combined with --classes or --tags");
  set_json_lines(format, a, option);
  return format;
}

// Format of the conversations or prompts; null: the text has no template.
const ConversationFormat* chat_of(const DocumentFormat& format) { return format.prompts ? format.prompts->chat.get() : format.conversation.get(); }

// Prints the special tokens of the template that the tokenizer does not have.
void print_unknown_marks(const DocumentFormat& format, const std::string& tokenizer) {
  const ConversationFormat* const chat = chat_of(format);
  if (!chat) return;
  for (const std::string& mark : chat->text.unknown_marks())
    std::printf("%s in the template is not a special token of %s: it is encoded as text\n", printable(mark).c_str(), printable(tokenizer).c_str());
}

// Prints a remark on a template with nothing between prompt and response.
void print_joined_placeholders(const DocumentFormat& format) {
  const ChatTemplate* const text = format.conversation ? format.conversation->text.format() : nullptr;
  if (text && text->joins_placeholders())
    std::printf("warning: the template has nothing between %s: a model cannot learn where the answer begins; write for example %s\n",
                text->of_messages() ? "{role} and {content}" : "{prompt} and {response}",
                text->of_messages() ? "--template '{role}: {content}\\n'" : "--template 'Question: {prompt}\\nAnswer: {response}'");
}

// Source of the loss mask that a chat template gives.
const char* mask_source(const JinjaChat& chat) {
  return chat.marks_replies() ? "from the {% generation %} blocks of the chat template"
                              : "from the difference of prefixes: the chat template has no {% generation %} block";
}

void print_report(const BuildReport& report, const DocumentFormat& format, const std::string& prefix, double seconds) {
  std::printf("%s.bin: %s in %s from %s of text, %.2f bytes per token, %.1f s\n", prefix.c_str(), counted(report.tokens, "token").c_str(),
              counted(report.documents, "document").c_str(), metric_text(double(report.bytes), "B").c_str(),
              double(report.bytes) / double(report.tokens), seconds);
  if (report.learned < report.tokens)
    std::printf("%s_mask.bin: %ld of the tokens (%.1f %%) are targets of the loss\n", prefix.c_str(), long(report.learned),
                100.0 * double(report.learned) / double(report.tokens));
  if (const JinjaChat* chat = format.conversation ? format.conversation->text.jinja() : nullptr)
    std::printf("%s_mask.bin: targets are %s\n", prefix.c_str(), mask_source(*chat));
  if (format.prompts) std::printf("%s: the other keys of each prompt\n", fields_path(prefix).c_str());
  if (report.labelled > 0) std::printf("%s_labels.bin: %s\n", prefix.c_str(), counted(report.labelled, "label").c_str());
  if (report.skipped_lines > 0) std::printf("invalid lines that were skipped: %ld\n", long(report.skipped_lines));
}

// Examples stay unsplit and are masked from each other. The vocabulary is that of the model of --init-from.
constexpr const char* settings_of_examples = "data.order=documents data.documents=separate";

// Prints warnings about the corpus, and for plain text, prompts, messages and pairs the deck settings that suit it.
void print_advice(const BuildReport& report, const BuildOptions& options, const std::string& tokenizer) {
  if (options.format.prompts) return;
  using Rule = DocumentFormat::Rule;
  const auto has_objects = [](const auto& path) { return path.string().find(".jsonl") != std::string::npos || path.extension() == ".ndjson"; };
  const auto is_table = [](const auto& path) { return path.extension() == ".csv" || path.extension() == ".tsv"; };
  const bool plain = options.format.rule != Rule::json_lines &&
                     (options.format.rule != Rule::automatic || std::none_of(options.inputs.begin(), options.inputs.end(), has_objects));
  const Index vocab_size = options.tokenizer->tokens;
  const DocumentSource documents = !plain                              ? DocumentSource::examples
                                   : options.format.rule == Rule::page ? DocumentSource::pages
                                                                       : DocumentSource::undivided;
  for (const std::string& warning : corpus_warnings(report, vocab_size, documents)) std::printf("warning: %s\n", warning.c_str());
  if (const auto objects = std::find_if(options.inputs.begin(), options.inputs.end(), has_objects); plain && objects != options.inputs.end())
    std::printf(
        "warning: %s has JSON lines by its name, but --documents reads their braces and keys as text; leave out --documents, and name the "
        "keys with --key, or with --template, --prompt-key and --response-key\n",
        printable(objects->string()).c_str());
  if (const auto cells = std::find_if(options.inputs.begin(), options.inputs.end(), is_table); plain && cells != options.inputs.end())
    std::printf("note: %s is read as plain text, with its commas and header; to read one column, make JSON lines of it: {\"text\": ...}\n",
                printable(cells->string()).c_str());
  const auto is_json = [](const auto& path) { return path.extension() == ".json"; };
  if (const auto array = std::find_if(options.inputs.begin(), options.inputs.end(), is_json); plain && array != options.inputs.end())
    std::printf("warning: %s is read as plain text, with its braces and keys; write an object per line and name the file .jsonl\n",
                printable(array->string()).c_str());
  if (options.format.labelled || !options.format.source_key.empty()) return;
  std::string further = fmt::format("model.vocab_size={}", vocab_size);
  if (options.format.conversation) further = settings_of_examples;
  if (options.format.pairs) further = fmt::format("{} train.objective=preference", settings_of_examples);
  std::printf("in the deck: data.prefixes=[%s] data.tokenizer=%s %s\n", printable(options.prefix.string()).c_str(), printable(tokenizer).c_str(),
              further.c_str());
  if (options.format.pairs)
    std::printf("             a reward model takes train.objective=reward; train.seq_length must be at least the tokens of a pair\n");
  std::printf("suggested:   %s\n", suggested_settings(report).c_str());
  if (const std::string text = validation_text(report); plain && !text.empty()) std::printf("validation:  %s\n", text.c_str());
}

void make_folder_of(const std::filesystem::path& prefix) {
  if (!prefix.has_parent_path()) return;
  std::error_code error;
  std::filesystem::create_directories(prefix.parent_path(), error);
  require(!error, Exit::io, "{}: the folder cannot be created: {}; choose another PREFIX", prefix.parent_path().string(), error.message());
}

// Options that determine the token files, for their fingerprint.
std::vector<std::pair<std::string, std::string>> given_options(const BuildArguments& a) {
  std::vector<std::pair<std::string, std::string>> given;
  const auto add = [&](const char* name, const std::string& value, const char* usual = "") {
    if (value != usual) given.emplace_back(name, value);
  };
  add("--documents", a.documents.rule, "auto"), add("--separator", a.documents.separator), add("--key", a.documents.key, "text");
  add("--classes", a.classes), add("--tags", a.tags), add("--source", a.source), add("--template", a.conversation.text());
  for (const auto& [name, set] : {std::pair("--skip-invalid", a.documents.skip_invalid), std::pair("--pairs", a.pairs),
                                  std::pair("--prompts", a.prompts), std::pair("--no-end", a.no_end), std::pair("--special", a.special)})
    if (set) given.emplace_back(name, "");
  return given;
}

// Exit::usage unless the words end with a PREFIX. Patterns that a shell did not expand are text files.
void require_prefix(const std::vector<std::string>& words) {
  const std::string& last = words.back();
  require(words.size() > 1, Exit::usage,
          "data build {0}: the PREFIX to write is missing; give it after the text files, as in `data build {0} PREFIX`", last);
  require(last.find_first_of("*?[") == last.npos, Exit::usage,
          "data build: {}: is a pattern of text files, not a PREFIX; give the PREFIX to write after the text files", last);
}

// Sets the options for the tokens around documents, which prompts do not have.
void set_special_tokens(BuildOptions& options, const BuildArguments& a, const Tokenizer& tokenizer) {
  options.complete = (a.special || !a.source.empty()) && !a.labelled();
  require(!a.special || !tokenizer.vocabulary().templates.empty(), Exit::usage, "--special: the post-processor of {} adds no tokens", a.tokenizer);
  require(!a.special || !options.format.conversation, Exit::usage,
          "--special cannot be combined with --template, which defines the tokens around turns");
  require(!a.special || !options.format.pairs, Exit::usage, "--special cannot be combined with --pairs");
  if (a.no_end || a.special || (a.complete() && !tokenizer.vocabulary().templates.empty())) return;
  options.eod = tokenizer.eod();
  require(options.eod.has_value(), Exit::data, "{} has no end-of-document token; give --no-end to append none", a.tokenizer);
}

// `tokenizer`: null if none is given, for prompts of token ids.
BuildOptions options_of(const BuildArguments& a, const Tokenizer* tokenizer, const Runtime& runtime) {
  BuildOptions options;
  options.inputs = files_named({a.files.begin(), a.files.end() - 1});
  options.prefix = a.files.back();
  require(options.prefix.has_filename(), Exit::usage, "'{}' is not a PREFIX of file names; give for example {}", a.files.back(),
          (options.prefix / "text").string());
  const std::time_t now = runtime.shared_time();
  options.format = a.prompts ? prompts_format(a, tokenizer, now) : format_of(a, *tokenizer, now);
  options.overwrite = a.overwrite;
  options.tokenizer = runtime.rank() == 0 && tokenizer ? mark_of(a.tokenizer) : TokenizerMark();
  options.tokenizer->tokens = tokenizer ? tokenizer->size() : 0;
  options.program = "gyrfalcon " + version(), options.given_options = given_options(a);
  if (!a.prompts) set_special_tokens(options, a, *tokenizer);
  return options;
}

BuildReport build_corpus(const Tokenizer* tokenizer, const BuildOptions& options, const BuildTeam& team,
                         const std::function<void(std::int64_t, std::int64_t)>& progress) {
  return options.format.prompts ? build_prompts(options, team, progress) : gyr::build_corpus(*tokenizer, options, team, progress);
}

int build(const BuildArguments& given) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        BuildArguments a = given;
        a.tokenizer = tokenizer_in(given.tokenizer, runtime);
        std::optional<Tokenizer> read;
        if (!a.tokenizer.empty()) read = encoding_tokenizer(a.tokenizer, runtime.rank() == 0);
        const Tokenizer* const tokenizer = read ? &*read : nullptr;
        const BuildOptions options = options_of(a, tokenizer, runtime);
        Grid grid(grid_layout(runtime.ranks(), 1, 1, {{0, 1}}), runtime.world(), wait_policy_of(runtime.world()));
        BuildTeam team;
        team.rank = runtime.rank(), team.size = runtime.ranks();
        team.all_gather = [&](std::int64_t x) {
          const double mine = double(x);  // exact as a double, because byte counts stay far below 2^53
          std::vector<std::int64_t> all;
          for (const double value : grid.world().gather({&mine, 1})) all.push_back(std::int64_t(value));
          return all;
        };
        team.collective_check = [&](const std::function<void()>& action) { collective_check(grid.world(), action); };
        if (runtime.rank() == 0) print_unknown_marks(options.format, a.tokenizer), print_joined_placeholders(options.format);
        team.collective_check([&] {
          if (runtime.rank() == 0) make_folder_of(options.prefix);
        });
        const auto begin = std::chrono::steady_clock::now();
        std::optional<Transfer> shown;  // progress of rank 0, scaled to all ranks
        const auto progress = [&](std::int64_t done, std::int64_t total) {
          if (!shown) shown.emplace(stdout, "tokenized", total * team.size);
          shown->reach(done * team.size);
        };
        const BuildReport report =
            runtime.rank() == 0 ? build_corpus(tokenizer, options, team, progress) : build_corpus(tokenizer, options, team, {});
        shown.reset();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (runtime.rank() != 0) return;
        print_report(report, options.format, options.prefix.string(), seconds);
        print_advice(report, options, a.tokenizer);
      },
      LastLine::never);
}

bool names_deck(const std::string& word) { return word.ends_with(".yaml") || word.ends_with(".yml"); }

int show_reading(const std::string& deck) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        DeckArguments arguments;
        arguments.deck = deck;
        std::string effective;
        const RunConfig run = read_deck(arguments, runtime, effective);
        if (runtime.rank() == 0) std::printf("%s", reading_table(run).c_str());
      },
      LastLine::never);
}

}  // namespace

void add_data(Command& app, Action& action) {
  auto a = std::make_shared<BuildArguments>();
  Command* c = app.add_command("data", "Build and inspect token files");
  c->require_command();
  Command* b = c->add_command("build", "Tokenize text or JSONL files into PREFIX.bin and PREFIX.idx (Megatron-LM's format)");
  b->add_option("files", a->files, "Text or JSONL files, also as .gz or .zst, or patterns such as 'shards/*.jsonl.zst'; then the PREFIX to write")
      ->required()
      ->words(1)
      ->shown_as("TEXT... PREFIX");
  b->add_option("--tokenizer", a->tokenizer,
                "tokenizer.json, or the folder of a model or run that has one; required, except for --prompts of token ids");
  a->conversation.add(*b, a->documents.add(*b));
  Option* const classes =
      b->add_option("--classes", a->classes,
                    "Classification examples {\"text\": ..., \"label\": ...} for train.objective classify: the class names NAME,NAME,... "
                    "or their number. A label is a class name or a number from 0");
  b->add_option("--tags", a->tags,
                "Token classification examples {\"tokens\": [...], \"tags\": [...]} for train.objective tag, or with \"text\" split at white space, "
                "with a class or null for each word: the class names or their number")
      ->excludes(classes);
  b->add_flag("--pairs", a->pairs,
              "Preference pairs {\"prompt\": ..., \"chosen\": ..., \"rejected\": ...} for train.objective preference or reward: two documents each, "
              "of prompt "
              "and response; only the response is a target of the loss. The prompt is optional");
  b->add_flag("--prompts", a->prompts,
              "Prompts {\"prompt\": ...} or, with --template, {\"messages\": [...]} for reinforcement learning. They are encoded like those of "
              "generate, up to the begin of the answer; a prompt may also be a list of token ids. The other keys of a line are fields that rewards "
              "read (PREFIX_fields.jsonl)");
  b->add_option("--source", a->source,
                "Pairs for train.objective seq2seq: JSON key of the encoder input, with --key as key of the target text; a.b is key b of the object "
                "a. Two documents each, encoded like prompts; only the second is a target of the loss");
  b->add_flag("--no-end", a->no_end, "Append no end-of-document token (which is a target of the loss if the token before it is)");
  b->add_flag("--special", a->special,
              "Put the tokens of the tokenizer's post-processor around every document ([CLS] ... [SEP]), in place of the end-of-document token; "
              "classification examples and pairs of --source always have them");
  b->add_flag("--overwrite", a->overwrite, "Replace existing files");
  b->callback([a, b, &action] {
    require_prefix(a->files);
    require(a->prompts || !a->tokenizer.empty(), Exit::usage, "--tokenizer is required: write `gyrfalcon data build FILES PREFIX --tokenizer FILE`");
    require(!a->prompts || !b->given("--response-key"), Exit::usage, "--response-key does not apply to --prompts, which have no response");
    action = [a] { return build(*a); };
  });

  auto prefix = std::make_shared<std::string>();
  Command* i = c->add_command("info",
                              "Show tokens, documents and their lengths, loss mask and labels of token files, and check all of it; or show how often "
                              "the run of a deck reads each of its corpora");
  i->add_option("prefix", *prefix, "PREFIX of PREFIX.bin and PREFIX.idx, or DECK.yaml")->required();
  i->callback([prefix, &action] {
    action = [prefix] {
      if (names_deck(*prefix)) return show_reading(*prefix);
      return guarded([&] { std::printf("%s", corpus_summary(*prefix).c_str()); });
    };
  });
  add_data_media(*c, action);
}

}  // namespace gyr
