// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon generate CHECKPOINT --prompt TEXT: generates text from prompts with a trained model.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/base/printable.hpp"
#include "modules/cost/flops.hpp"
#include "src/base/json.hpp"
#include "src/base/precision.hpp"
#include "src/base/quantity.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/commands/command.hpp"
#include "src/commands/notes.hpp"
#include "src/commands/prompt_file.hpp"
#include "src/commands/retrieval_option.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/template_option.hpp"
#include "src/commands/tokenizer_file.hpp"
#include "src/commands/weights_option.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/generate/service.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"
#include "src/report/summary.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

namespace {

struct GenerateArguments {
  std::string checkpoint, tokenizer, precision, weights = "stored", batch;
  std::vector<std::string> prompts, stop;
  Index batch_size = 8, limit = 0;
  TemplateOption chat;
  RetrievalOption retrieval;
  Sampling sampling;
  bool greedy = false, plain = false, model_template = false;
  int pipeline = 1, data = 1;
};

// Prompts as tokens, and the tokens that end a response.
struct Questions {
  std::vector<Request> requests;
  std::set<Token> ends;
  bool continued = false;  // the responses continue the text of the prompts
};

// `source_end`: token at the end of an encoder's input; none for a model without an encoder. `most`: tokens of a prompt with a
// passage before it. `now`: the time that a chat template may ask for.
Questions read_questions(GenerateArguments& a, const Tokenizer& tokenizer, std::optional<Token> source_end, Index most, std::time_t now) {
  Questions q;
  const auto chat = a.chat.given()     ? std::optional(a.chat.read(tokenizer, now))
                    : a.model_template ? std::optional(needed_chat_of_model(a.checkpoint, tokenizer, now))
                                       : std::nullopt;
  require(!(chat && a.plain), Exit::usage,
          "--plain cannot be combined with --template or --chat, which recognise special tokens in the template only");
  const auto encoded = [&](const std::string& text) {
    std::vector<Token> prompt;
    if (!chat) prompt = tokenizer.encode(text, a.plain ? Tokenizer::Specials::as_text : Tokenizer::Specials::complete);
    TextPosition position = TextPosition::begin;
    if (chat)
      for (const Utterance& utterance : chat->question(text, "assistant")) encode(utterance, tokenizer, prompt, position);
    if (source_end && !a.plain && (prompt.empty() || prompt.back() != *source_end)) prompt.push_back(*source_end);
    if (prompt.empty() && tokenizer.eod()) prompt.push_back(*tokenizer.eod());
    return prompt;
  };
  for (const std::string& text : a.prompts) {
    const Index id = Index(q.requests.size());
    const std::vector<Token> prompt = encoded(a.retrieval.in_context(id, text, tokenizer, encoded, most));
    q.requests.push_back({id, prompt});
    require(!prompt.empty(), Exit::usage, "{} '{}' encodes to no token, and the tokenizer has no end-of-text token to start with; write some text",
            a.batch.empty() ? "--prompt" : fmt::format("{}: prompt {}", a.batch, q.requests.size()), text);
  }
  for (const auto& mark : {tokenizer.eod(), chat ? chat->closing_mark() : std::nullopt, source_end})
    if (mark) q.ends.insert(*mark);
  for (const Index end : end_tokens_in(companions_of(a.checkpoint), a.checkpoint)) q.ends.insert(Token(end));
  q.continued = !chat && !source_end;
  return q;
}

Grid grid_of(const GenerateArguments& a, const RunConfig& run, Index seq_length, Runtime& runtime) {
  require(runtime.ranks() % (a.data * a.pipeline) == 0, Exit::config,
          "--data {} x --pipeline {} does not divide the {} ranks; start a multiple of {}", a.data, a.pipeline, runtime.ranks(), a.data * a.pipeline);
  const int tensor = runtime.ranks() / (a.data * a.pipeline);
  for (const auto& [key, count] : sharded_units(run.model))
    require(count % tensor == 0 || tensor % count == 0, Exit::device,
            "{} = {} cannot be sharded over {} tensor-parallel ranks; start a number of ranks that divides it or is a multiple, or use --pipeline",
            key, count, tensor);
  const StageCosts costs = stage_costs(run.model, seq_length);
  return Grid(grid_layout(a.data, a.pipeline, tensor, split_stages(costs.layers, costs.embedding, costs.head, a.pipeline)), runtime.world(),
              wait_policy_of(runtime.world()));
}

// Truncates the text at a stop string; if several occur, the first one in the list counts. Returns true if one occurs.
bool truncate_at(std::string& text, const std::vector<std::string>& marks) {
  for (const std::string& mark : marks)
    if (const auto at = text.find(mark); at != std::string::npos) {
      text.resize(at);
      return true;
    }
  return false;
}

// Notes the sampling settings and the chat template that the model's files suggest. They are not applied, because
// sampling depends on the command line only.
void note_unapplied_settings(const GenerateArguments& a, const Note& note) {
  if (!note) return;
  try {
    const Companions companions = companions_of(a.checkpoint);
    const std::string suggested = suggestions_in(companions, a.checkpoint);
    if (!suggested.empty())
      note(fmt::format("{} suggests {}: not applied, see --temperature, --top-k, --top-p and --tokens", generation_file_name, suggested));
    if (!a.chat.given() && !a.model_template && chat_template_in(companions, a.checkpoint))
      note("the model has a chat template, but the prompts are continued without it; --chat applies it");
  } catch (const Error& error) {  // only a note on this rank: all ranks read the required parts of these files elsewhere
    note(error.what());
  }
}

// Responses generated so far. Each one is printed when it and all earlier ones have ended: as prompt and text or, with
// --batch, as a line of JSON.
class Responses {
 public:
  Responses(const GenerateArguments& a, const Questions& questions, const Tokenizer& tokenizer)
      : a_(a), questions_(questions), tokenizer_(tokenizer), ended_(questions.requests.size()) {}

  // True if the text contains a stop string.
  bool stops(const GeneratedText& reply) const {
    std::string text = text_of(reply);
    return truncate_at(text, a_.stop);
  }
  // Adds a response that has ended, and prints the ones that can be printed, in order.
  void print(const GeneratedText& reply) {
    ended_[std::size_t(reply.id)] = reply;
    for (; printed_ < ended_.size() && ended_[printed_]; ++printed_) print_line(*ended_[printed_]);
    std::fflush(stdout);
  }

 private:
  std::string text_of(const GeneratedText& reply) const {
    std::vector<Token> tokens;
    for (const Token token : reply.tokens)  // padding ids of the vocabulary have no text
      if (tokenizer_.has(token) && !questions_.ends.contains(token)) tokens.push_back(token);
    return questions_.continued ? tokenizer_.decode_after(questions_.requests[std::size_t(reply.id)].prompt, tokens) : tokenizer_.decode(tokens);
  }
  void print_line(const GeneratedText& reply) const {
    static constexpr const char* ends[] = {"", "end", "stop", "length"};
    const std::string& prompt = a_.prompts[std::size_t(reply.id)];
    std::string text = text_of(reply);
    if (reply.end == TextEnd::stop) truncate_at(text, a_.stop);
    // A text may contain zero bytes, at which a C string would end.
    // A response that does not continue the text of its prompt begins on a line of its own.
    if (a_.batch.empty()) text = (printed_ ? "\n" : "") + prompt + (questions_.continued || prompt.ends_with('\n') ? "" : "\n") + text;
    else text = json_line(reply, prompt, text, ends[int(reply.end)]);
    text += "\n";
    if (a_.batch.empty() && a_.retrieval.cites()) text += a_.retrieval.citations(reply);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  std::string json_line(const GeneratedText& reply, const std::string& prompt, const std::string& text, const char* end) const {
    Json line{{"prompt", prompt}, {"text", text}, {"tokens", reply.tokens.size()}, {"end", end}};
    if (a_.retrieval.cites()) a_.retrieval.add_citations(reply, line);
    return json_text(line);
  }
  const GenerateArguments& a_;
  const Questions& questions_;
  const Tokenizer& tokenizer_;
  std::vector<std::optional<GeneratedText>> ended_;
  std::size_t printed_ = 0;
};

// Prints time and throughput of prefill (prompts, with the first new token of each) and of decoding, in llama.cpp's words, and
// the number of CUDA graphs used.
void print_throughput(const GeneratorPace& pace, Index graphs, Index made) {
  const auto part = [](const char* name, Index tokens, double seconds) {
    return fmt::format("{} {} in {:.2f} s{}", name, counted(tokens, "token"), seconds,
                       tokens > 0 && seconds > 0 ? fmt::format(", {:.1f} tokens/s", double(tokens) / seconds) : "");
  };
  std::fprintf(stderr, "%s; %s; total %.2f s, %s%s\n", part("prompt eval", pace.prompt_tokens, pace.prompt_seconds).c_str(),
               part("eval", pace.new_tokens, pace.new_seconds).c_str(), pace.prompt_seconds + pace.new_seconds, counted(made, "new token").c_str(),
               graphs > 0 ? (" with " + counted(graphs, "CUDA graph")).c_str() : "");
}

// Reports the size of the work before it begins, and prompts that are longer than the sequences of the training.
void announce(const GenerateArguments& a, const RunConfig& run, const Questions& questions, Index longest_prompt) {
  const std::size_t prompts = questions.requests.size();
  if (!a.batch.empty())
    std::fprintf(stderr, "%s: %s, at most %s each\n", printable_line(a.batch).c_str(), counted(Index(prompts), "prompt").c_str(),
                 counted(a.sampling.tokens, "new token").c_str());
  const Index trained = run.train.seq_length;
  const auto longer =
      std::count_if(questions.requests.begin(), questions.requests.end(), [&](const Request& r) { return Index(r.prompt.size()) > trained; });
  if (longer > 0)
    std::fprintf(stderr,
                 "warning: %s longer than the sequences of the training (the longest has %s, train.seq_length is %s): the text may be poor, and the "
                 "prompt takes long\n",
                 prompts == 1 ? "the prompt is" : fmt::format("{} of {} are", longer, counted(Index(prompts), "prompt")).c_str(),
                 counted(longest_prompt, "token").c_str(), fmt::format("{}", trained).c_str());
}

void generate(GenerateArguments& a, const RunConfig& run, Runtime& runtime) {
  const std::string file = a.tokenizer.empty() ? run.data.tokenizer : a.tokenizer;
  require(!file.empty(), Exit::usage, "the checkpoint's deck names no tokenizer: give --tokenizer FILE");
  const Tokenizer tokenizer = Tokenizer::load(file);
  require(tokenizer.size() <= run.model.vocab_size, Exit::data,
          "{}: {} tokens, and the model's vocabulary has {}: is it the tokenizer of another model?", file, tokenizer.size(), run.model.vocab_size);
  const struct Closing {
    RetrievalOption& option;
    ~Closing() { option.close(); }
  } closing{a.retrieval};
  a.retrieval.open(run, file, a.data, notes_of(runtime));
  const Questions questions =
      read_questions(a, tokenizer, run.model.objective->end_token(), run.train.seq_length - a.sampling.tokens, runtime.shared_time());
  Index asked = 0;
  for (const Request& request : questions.requests) asked = std::max(asked, Index(request.prompt.size()));
  require(a.sampling.tokens <= longest - asked, Exit::usage, "--tokens {}: the maximum is {} after a prompt of {} tokens", a.sampling.tokens,
          longest - asked, asked);
  if (runtime.rank() == 0) note_other_tokenizer(a.tokenizer, run.data.tokenizer, tokenizer), announce(a, run, questions, asked);
  Grid grid = grid_of(a, run, asked, runtime);
  Generator generator(run.model, precision_of(a.precision.empty() ? run.train.precision : a.precision), grid,
                      {std::min(Index(questions.requests.size()), a.batch_size), asked, a.sampling.tokens, factors_of(a.weights)});
  generator.retrieve_with(a.retrieval.options());
  Stage& stage = generator.stage();
  stage.fill([&](ParameterList weights, const Arrived& arrived) { load_weights(a.checkpoint, grid, stage.config(), weights, arrived); });

  Responses responses(a, questions, tokenizer);
  GenerationService service(generator);
  Sampling sampling = a.sampling;
  sampling.ends = questions.ends;
  TextHooks hooks;
  if (!a.stop.empty()) hooks.stops = [&](const GeneratedText& reply) { return responses.stops(reply); };
  const bool streams = runtime.rank() == 0 && a.data == 1;
  if (streams) hooks.done = [&](const GeneratedText& reply) { responses.print(reply); };
  Index made = 0;
  for (const GeneratedText& reply : service.serve(questions.requests, sampling, hooks)) {
    made += Index(reply.tokens.size());
    if (runtime.rank() == 0 && !streams) responses.print(reply);
  }
  if (runtime.rank() == 0) print_throughput(service.pace(), generator.graphs(), made);
}

int run(GenerateArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        if (runtime.rank() == 0) std::fprintf(stderr, "%s", runtime.thread_advice().c_str());
        a.checkpoint = chosen_model(a.checkpoint, runtime, print_note);
        if (!a.batch.empty()) a.prompts = prompts_in(a.batch);
        if (a.limit > 0 && Index(a.prompts.size()) > a.limit) a.prompts.resize(std::size_t(a.limit));
        const RunConfig run = inference_run(a.checkpoint, notes_of(runtime));
        note_unapplied_settings(a, notes_of(runtime));
        generate(a, run, runtime);
      },
      LastLine::never);
}

}  // namespace

void add_generate(Command& app, Action& action) {
  auto a = std::make_shared<GenerateArguments>();
  a->sampling.temperature = 0.8;
  Command* c = app.add_command("generate", "Generate text from prompts with a checkpoint; under mpiexec the model is split over the ranks");
  c->footer("\nGenerated text is printed unchanged, control characters included; view the text of an unknown model with `| cat -v`.\n\n" +
            exit_codes());
  c->add_option("checkpoint", a->checkpoint, "Checkpoint, folder of a run (its newest checkpoint), or Hugging Face folder")->required();
  Option* prompt = c->add_option("--prompt", a->prompts, "Text to continue; may be given several times")->repeated();
  c->add_option(
       "--batch", a->batch,
       "File of prompts, one per line, or *.jsonl with {\"prompt\": ...} on each line. Each response is a line of JSON: prompt, text, tokens "
       "generated, and why it ended: end (end token of the model), stop (--stop) or length (--tokens)")
      ->excludes(prompt);
  c->add_option("--limit", a->limit, "Maximum number of prompts of --batch; 0: all")->not_negative()->show_default();
  c->add_option(
       "--together", a->batch_size,
       "Maximum number of prompts in a batch; when one ends, the next one joins. Up to 8 of them share each read of the weights, and none depends "
       "on another")
      ->positive()
      ->show_default();
  a->chat.add(*c, "Template for prompts, as in data build: the prompt is inserted, and the model continues where the response begins.");
  c->add_flag("--chat", a->model_template, "Use the model's own chat template");
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json; default: the one that the checkpoint's deck names");
  c->add_flag("--plain", a->plain,
              "Encode special tokens spelt in a prompt as text, and omit the tokens that the tokenizer adds around a text (begin of text, ...); "
              "default: encode prompts as Hugging Face's tokenizer(prompt) does");
  c->add_option("--tokens", a->sampling.tokens, "Maximum number of new tokens per prompt")->positive()->show_default();
  c->add_option("--temperature", a->sampling.temperature, "Sampling temperature; 0: always the most likely token")->not_negative()->show_default();
  c->add_flag("--greedy", a->greedy, "The same as --temperature 0");
  c->add_option("--top-k", a->sampling.top_k, "Sample from the k most likely tokens; of equally likely ones the lower id comes first; 0: all")
      ->not_negative()
      ->show_default();
  c->add_option("--top-p", a->sampling.top_p, "Nucleus sampling: sample from the most likely of these tokens, up to a total probability of p")
      ->between(0, 1)
      ->show_default();
  c->add_option("--seed", a->sampling.seed, "Seed of the random sampling")->show_default();
  c->add_option("--stop", a->stop, "End a response where this text appears; may be given several times")->repeated();
  a->retrieval.add(*c);
  c->add_option("--pipeline", a->pipeline, "Pipeline stages; the ranks of a stage are tensor-parallel")->positive()->show_default();
  c->add_option("--data", a->data, "Model replicas (data parallel), each with its own prompts; a response does not depend on their number")
      ->positive()
      ->show_default();
  c->add_option("--precision", a->precision, "fp32, fp64 or bf16; default: as trained")->one_of({"fp32", "fp64", "bf16"});
  add_weights_option(*c, a->weights);
  c->callback([a, c, &action] {
    require(!c->given("--limit") || !a->batch.empty(), Exit::usage, "--limit: applies to --batch FILE only");
    require(!a->prompts.empty() || !a->batch.empty(), Exit::usage, "nothing to continue: give --prompt TEXT or --batch FILE");
    if (a->greedy) a->sampling.temperature = 0;
    require(!(a->model_template && a->chat.given()), Exit::usage,
            "--chat uses the model's template, and --template gives another one; give only one of them");
    action = [a] { return run(*a); };
  });
}

}  // namespace gyr
