// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon generate CHECKPOINT --prompt TEXT: continues prompts with a trained model.
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>

#include "modules/flops.hpp"
#include "src/base/precision.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/commands/command.hpp"
#include "src/commands/notes.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/template_option.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/generator.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"
#include "src/report/summary.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

namespace {

struct Arguments {
  std::string checkpoint, tokenizer, precision;
  std::vector<std::string> prompts, stop;
  TemplateOption chat;
  Sampling sampling;
  bool greedy = false, plain = false, own_template = false;
  int pipeline = 1;
};

// What the model is asked, as tokens, and the tokens that end an answer.
struct Questions {
  std::vector<std::vector<Token>> prompts;
  std::set<Token> ends;
  Index longest() const {
    std::size_t most = 0;
    for (const auto& prompt : prompts) most = std::max(most, prompt.size());
    return Index(most);
  }
};

Questions read_questions(const Arguments& a, const Tokenizer& tokenizer) {
  Questions q;
  const auto chat = a.chat.given()   ? std::optional(a.chat.read(tokenizer))
                    : a.own_template ? std::optional(TemplateOption::of_model(a.checkpoint, tokenizer))
                                     : std::nullopt;
  require(!(chat && a.plain), Exit::usage, "--plain has no meaning with --template or --chat, whose special tokens count and whose prompts are text");
  for (const std::string& text : a.prompts) {
    std::vector<Token>& prompt = q.prompts.emplace_back();
    if (!chat) prompt = tokenizer.encode(text, a.plain ? Tokenizer::Specials::as_text : Tokenizer::Specials::complete);
    else
      for (const Utterance& utterance : chat->question(text, "assistant")) encode(utterance, tokenizer, prompt);
    if (prompt.empty() && tokenizer.eod()) prompt.push_back(*tokenizer.eod());
    require(!prompt.empty(), Exit::usage, "--prompt '{}' has no token, and the tokenizer no end-of-text token to begin with; write some text", text);
  }
  for (const auto& end : {tokenizer.eod(), chat ? chat->closing_mark() : std::nullopt})
    if (end) q.ends.insert(*end);
  for (const Index end : end_tokens_in(companions_of(a.checkpoint), a.checkpoint)) q.ends.insert(Token(end));
  return q;
}

Grid grid_of(const Arguments& a, const RunConfig& run, Index seq_length, Runtime& runtime) {
  require(runtime.ranks() % a.pipeline == 0, Exit::config, "--pipeline {} does not divide the {} ranks", a.pipeline, runtime.ranks());
  const int tensor = runtime.ranks() / a.pipeline;
  for (const auto& [key, count] : sharded_units(run.model))
    require(count % tensor == 0 || tensor % count == 0, Exit::device,
            "{} = {} cannot be shared by {} ranks; start another number of them, which divides it or is a multiple, or have --pipeline take a part",
            key, count, tensor);
  const StageCosts costs = stage_costs(run.model, seq_length);
  return Grid(grid_layout(1, a.pipeline, tensor, cut_stages(costs.layers, costs.embedding, costs.head, a.pipeline)), runtime.world(),
              patience_of(runtime.world()));
}

// Cuts a text where one of the marks appears; whether it did.
bool cut_at(std::string& text, const std::vector<std::string>& marks) {
  for (const std::string& mark : marks)
    if (const auto at = text.find(mark); at != std::string::npos) {
      text.resize(at);
      return true;
    }
  return false;
}

// What the model's files say about its use, and is left to the options: a text shall not depend on more than the command says.
void say_customs(const Arguments& a, const Note& note) {
  if (!note) return;
  try {
    const Companions companions = companions_of(a.checkpoint);
    const std::string suggested = suggestions_in(companions, a.checkpoint);
    if (!suggested.empty())
      note(fmt::format("{} suggests {}: not applied, see --temperature, --top-k, --top-p and --tokens", generation_file_name, suggested));
    if (!a.chat.given() && !a.own_template && chat_template_in(companions, a.checkpoint))
      note("the model has a chat template, and prompts are continued as they stand; --chat asks with it");
  } catch (const Error& error) {  // told on this rank alone: what is needed of these files is read by all
    note(error.what());
  }
}

void generate(const Arguments& a, const RunConfig& run, Runtime& runtime) {
  const std::string file = a.tokenizer.empty() ? run.data.tokenizer : a.tokenizer;
  require(!file.empty(), Exit::usage, "the checkpoint's deck names no tokenizer: give --tokenizer FILE");
  const Tokenizer tokenizer = Tokenizer::load(file);
  require(tokenizer.size() <= run.model.vocab_size, Exit::data,
          "{}: {} tokens, and the model's vocabulary has {}: is it the tokenizer of another model?", file, tokenizer.size(), run.model.vocab_size);
  const Questions questions = read_questions(a, tokenizer);
  const Index count = Index(questions.prompts.size()), asked = questions.longest();
  require(a.sampling.tokens <= longest - asked, Exit::usage, "--tokens {}: {} are the most after a prompt of {}", a.sampling.tokens, longest - asked,
          asked);
  Grid grid = grid_of(a, run, asked, runtime);
  Generator generator(run.model, precision_of(a.precision.empty() ? run.train.precision : a.precision), grid, count, asked,
                      asked + a.sampling.tokens);
  load_weights(a.checkpoint, grid, generator.stage().config(), generator.stage().parameters().all());

  std::vector<std::string> texts(count);
  std::vector<std::vector<Token>> tokens(count);
  Index made = 0;
  const auto begin = std::chrono::steady_clock::now();
  generator.generate(questions.prompts, a.sampling, [&](Index i, Token token) {
    made += 1;
    if (questions.ends.contains(token)) return true;
    if (tokenizer.has(token)) tokens[i].push_back(token);  // padding of the vocabulary has no text
    texts[i] = tokenizer.decode(tokens[i]);
    return cut_at(texts[i], a.stop);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (runtime.rank() != 0) return;
  for (Index i = 0; i < count; ++i) std::printf("%s%s%s\n", i ? "\n" : "", a.prompts[i].c_str(), texts[i].c_str());
  std::fprintf(stderr, "%ld tokens in %.2f s: %.1f tokens/s\n", long(made), seconds, double(made) / seconds);
}

int run(const Arguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        const RunConfig run = run_of(a.checkpoint, notes_of(runtime));
        say_customs(a, notes_of(runtime));
        generate(a, run, runtime);
      },
      false);
}

}  // namespace

void add_generate(Command& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  a->sampling.temperature = 0.8;
  Command* c = app.add_command("generate", "Continue prompts with a checkpoint; under mpiexec the ranks share the model");
  c->footer("\nThe text goes out as the model made it, control characters included: look at what an unknown model says with `| cat -v`.\n\n" +
            exit_codes());
  c->add_option("checkpoint", a->checkpoint, "Checkpoint or Hugging Face folder")->required();
  c->add_option("--prompt", a->prompts, "Text to continue; may be given several times")->required()->repeated();
  a->chat.add(*c, "Ask a fine-tuned model: each prompt stands in this text, as in data build, and the model goes on where the response begins.");
  c->add_flag("--chat", a->own_template, "The same with the model's own chat template, where it writes every turn in one form");
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json; without it the one the checkpoint's deck names");
  c->add_flag("--plain", a->plain,
              "Special tokens spelt in a prompt are text, and those that the tokenizer puts around a text (begin of text, ...) are left out; "
              "without this prompts are encoded as Hugging Face's tokenizer(prompt) does");
  c->add_option("--tokens", a->sampling.tokens, "Most new tokens of a prompt")->positive()->show_default();
  c->add_option("--temperature", a->sampling.temperature, "Sharpness of the draw; 0 takes the most likely token")->not_negative()->show_default();
  c->add_flag("--greedy", a->greedy, "The same as --temperature 0");
  c->add_option("--top-k", a->sampling.top_k, "Draw among the k most likely, the lower token first where two are alike; 0: all")
      ->not_negative()
      ->show_default();
  c->add_option("--top-p", a->sampling.top_p, "Draw among the most likely of these, up to the one with which they reach p of their mass")
      ->between(0, 1)
      ->show_default();
  c->add_option("--seed", a->sampling.seed, "Seed of the draws")->show_default();
  c->add_option("--stop", a->stop, "End a text where this appears; may be given several times")->repeated();
  c->add_option("--pipeline", a->pipeline, "Stages the layers are cut into; the ranks of a stage share each layer")->positive()->show_default();
  c->add_option("--precision", a->precision, "fp32, fp64 or bf16; without it as trained")->one_of({"fp32", "fp64", "bf16"});
  c->callback([a, &action] {
    if (a->greedy) a->sampling.temperature = 0;
    require(!(a->own_template && a->chat.given()), Exit::usage, "--chat takes the model's template, and --template gives another: say which");
    action = [a] { return run(*a); };
  });
}

}  // namespace gyr
