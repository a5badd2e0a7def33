// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon eval and generate with layers R: the control with shuffled neighbours, equal texts on any ranks, cited
// documents, a passage in the prompt, a page of a text with its neighbours, and messages for what is missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <regex>
#include <sstream>

#include "regression/support/folder.hpp"
#include "regression/support/process.hpp"
#include "src/base/json.hpp"

namespace gyr::testing::retrieval_suite {

namespace fs = std::filesystem;

namespace {

constexpr const char* model = R"(
model:
  pattern: "P*R-"
  vocab_size: 300
  hidden_size: 16
  attention: {num_heads: 2, num_kv_heads: 2, head_dim: 8}
  mamba: {num_heads: 2, head_dim: 8, state_size: 4, chunk_size: 8}
  mlp: {intermediate_size: 16}
  retrieval: {chunk: 8, neighbors: 2, encoder: "*X-"}
train: {steps: 12, global_batch_size: 4, micro_batch_size: 4, seq_length: 32, precision: fp64, eval_every: 12, eval_batches: 1, log_every: 12}
optimizer: {lr: 1e-2, warmup_steps: 0}
checkpoint: {every: 0}
)";

void must(const Words& words) {
  const Result r = run(words);
  ensure(r.code == 0, "gyrfalcon {} {}: {}", words[0], words[1], output_of(r));
}

// Documents of drawn words, a project of them, and a model with layers R that was trained on them.
struct Trained {
  Folder folder;
  fs::path prefix = folder / "text", deck = folder / "deck.yaml", project = folder / "project", out = folder / "run";

  Trained() {
    std::mt19937 random(5);
    std::string text;
    for (int document = 0; document < 60; ++document) {
      for (int word = 0; word < 30; ++word) text += fmt::format("w{} ", std::min(random() % 60, random() % 60));
      text.back() = '\n';
      text += "\n";
    }
    put_contents(folder / "text.txt", text);
    must({"tokenizer", "train", folder / "tokenizer.json", folder / "text.txt", "--vocab-size", "300"});
    must({"data", "build", folder / "text.txt", prefix, "--tokenizer", folder / "tokenizer.json", "--documents", "separator"});
    put_contents(deck, fmt::format("{}data: {{prefixes: [{}], split: \"80,20,0\", tokenizer: {}}}\nretro: {{project: {}}}\noutput: {{folder: {}}}\n",
                                   model, prefix.string(), (folder / "tokenizer.json").string(), project.string(), out.string()));
    must({"retro", "build-db", project, deck, "--chunk", "8"});
    must({"retro", "index", project});
    must({"retro", "query", project, deck});
    must({"train", deck});
  }
};

const Trained& trained() {
  static const Trained all;
  return all;
}

Result must_run(Words words, const Words& more, int ranks = 0) {
  words.insert(words.end(), more.begin(), more.end());
  const Result r = run(words, {.ranks = ranks});
  EXPECT_EQ(r.code, 0) << output_of(r);
  return r;
}

double loss_of(const Words& more, int ranks = 0) {
  const Result r = must_run({"eval", trained().out}, more, ranks);
  double loss = 0;
  const auto at = r.out.find("loss ");
  EXPECT_TRUE(at != std::string::npos && std::sscanf(r.out.c_str() + at, "loss %lf", &loss) == 1) << output_of(r);
  return loss;
}

std::string text_of(const Words& more, int ranks = 0) {
  return must_run({"generate", trained().out, "--greedy", "--tokens", "20", "--prompt", "w1 w2 w3 w4 w5 w0", "--prompt", "w7 w7"}, more, ranks).out;
}

void expect_refused(const Words& words, Exit code, const std::string& part) {
  const Result r = run(words);
  EXPECT_EQ(r.code, int(code)) << output_of(r);
  EXPECT_NE(r.err.find(part), std::string::npos) << output_of(r);
}

}  // namespace

TEST(retrieval, eval_reads_neighbours_or_shuffled_ones) {
  const double loss = loss_of({});
  EXPECT_GT(loss, 1);
  EXPECT_EQ(loss_of({}, 2), loss);
  EXPECT_EQ(loss_of({"--tensor", "2"}, 2), loss);
  EXPECT_EQ(loss_of({"--shuffle-neighbors", "0", "--retrieval", trained().project}), loss);
  EXPECT_NE(loss_of({"--shuffle-neighbors", "1"}), loss);
  EXPECT_NE(loss_of({"--split", "train"}), loss);
}

// The records have the overlap of windows with their neighbours. Neighbours of other chunks contain less of a text.
TEST(retrieval, records_have_the_overlap_with_neighbours) {
  const auto mean_overlap = [](const Words& more, int ranks) {
    const fs::path records = trained().folder / "records.jsonl";
    must_run({"eval", trained().out, "--split", "train", "--records", records, "--overwrite"}, more, ranks);
    std::istringstream lines(contents(records));
    double sum = 0, tokens = 0;
    for (std::string line; std::getline(lines, line); tokens += 1) sum += Json::parse(line).at("overlap").get<double>();
    return sum / tokens;
  };
  const double own = mean_overlap({}, 1);
  EXPECT_EQ(mean_overlap({}, 2), own);
  EXPECT_GT(own, 0);
  EXPECT_LT(mean_overlap({"--shuffle-neighbors", "1"}, 1), own);
}

TEST(retrieval, eval_names_what_is_missing) {
  const fs::path copy = trained().folder / "without_queries";
  fs::copy(trained().project, copy, fs::copy_options::recursive);
  fs::remove_all(copy / "query");
  expect_refused({"eval", trained().out, "--retrieval", copy}, Exit::missing, "without_queries/query: has no neighbours of the validation samples");
  expect_refused({"eval", trained().out, "--length", "16"}, Exit::config, "train.seq_length = 32, but this command has 16");
  expect_refused({"eval", trained().out, "--split", "test"}, Exit::usage, "give --data PREFIX");
  expect_refused({"eval", trained().out, "--text", trained().folder / "text.txt"}, Exit::usage, "give --data or --split");
}

TEST(retrieval, text_is_the_same_on_any_ranks) {
  const std::string text = text_of({});
  EXPECT_EQ(text_of({}, 2), text);
  EXPECT_EQ(text_of({"--pipeline", "2"}, 2), text);
  EXPECT_EQ(text_of({"--data", "2"}, 2), text);
  EXPECT_EQ(text_of({"--together", "1"}), text);
}

TEST(retrieval, cited_documents_exclude_the_passage_in_the_prompt) {
  Json line;
  const auto cited = [&](const Words& more) {
    const Result r = must_run({"generate", trained().out, "--greedy", "--tokens", "9", "--batch", trained().folder / "prompts.txt", "--cite"}, more);
    std::vector<long> chunks;
    line = Json::parse(r.out);
    for (const Json& chunk : line.at("cited"))
      for (const Json& passage : chunk.at("passages")) chunks.push_back(passage.at("chunk").get<long>());
    return chunks;
  };
  put_contents(trained().folder / "prompts.txt", "w3 w1 w4 w15\n");
  const Result found = must_run({"retro", "search", trained().project, "--text", "w3 w1 w4 w15", "-k", "1"}, {});
  long best = -1;
  ASSERT_EQ(std::sscanf(found.out.c_str(), "1. chunk %ld", &best), 1) << output_of(found);
  const std::vector<long> without = cited({});
  EXPECT_FALSE(line.contains("in_context"));
  const std::vector<long> with = cited({"--in-context", "1"});
  ASSERT_EQ(line.at("in_context").size(), 1u);
  EXPECT_EQ(line.at("in_context")[0].at("chunk").get<long>(), best);
  EXPECT_GT(without.size(), 0u);
  EXPECT_GT(with.size(), without.size());  // those of the passage are cited too
  EXPECT_EQ(std::count(with.begin(), with.end(), best), 0);
  EXPECT_NE(text_of({"--cite"}).find("document "), std::string::npos);
  EXPECT_EQ(text_of({"--cite"}).find("[in the prompt]"), std::string::npos);
  EXPECT_NE(text_of({"--cite", "--in-context", "1"}).find("[in the prompt] document "), std::string::npos);
}

// The page reads the windows that eval reads, so their losses are equal.
// Neighbours, their order after --resume and the dropout of the encoder included.
TEST(retrieval, killed_training_continues_with_the_same_bits) {
  const Folder folder;
  const auto train = [&](const char* out, const Words& more) {
    Words words{"train",
                trained().deck,
                "output.folder=" + (folder / out).string(),
                "train.steps=6",
                "optimizer.decay_steps=6",
                "checkpoint.every=2",
                "train.eval_every=0",
                "model.retrieval.encoder_dropout=0.5"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, {.ranks = 2});
  };
  const Words on_two_ranks{"train.micro_batch_size=2"};
  const auto with = [&](Words more) { return more.insert(more.end(), on_two_ranks.begin(), on_two_ranks.end()), more; };
  EXPECT_EQ(train("whole", on_two_ranks).code, 0);
  EXPECT_NE(train("killed", with({"fault.kind=kill", "fault.rank=1", "fault.step=4"})).code, 0);
  const Result resumed = train("killed", with({"--resume"}));
  EXPECT_EQ(resumed.code, 0) << output_of(resumed);
  EXPECT_NE(resumed.out.find("resumed from"), std::string::npos) << output_of(resumed);
  const Result diff = run({"diff", folder / "whole", folder / "killed"});
  EXPECT_EQ(diff.code, 0) << output_of(diff);
  EXPECT_TRUE(std::regex_search(diff.out, std::regex("([0-9]+) tensors: \\1 equal"))) << output_of(diff);
}

TEST(retrieval, page_shows_neighbours_and_the_loss_of_eval) {
  const Trained& t = trained();
  std::mt19937 random(7);
  std::string text;
  for (int word = 0; word < 70; ++word) text += fmt::format("w{}{}", std::min(random() % 60, random() % 60), word == 69 ? "" : " ");
  put_contents(t.folder / "new.txt", text);
  must({"data", "build", t.folder / "new.txt", t.folder / "new", "--tokenizer", t.folder / "tokenizer.json", "--documents", "file", "--no-end"});
  must({"retro", "query", t.project, t.deck, fmt::format("data.prefixes=[{}]", (t.folder / "new").string()), "data.split=\"1\"",
        "train.eval_every=0"});
  const std::string line = must_run({"eval", t.out, "--data", t.folder / "new"}, {}).out;
  double loss = 0;
  long tokens = 0;
  ASSERT_EQ(std::sscanf(line.c_str() + line.find("loss "), "loss %lf | perplexity %*f | %ld tokens", &loss, &tokens), 2) << line;
  const auto page = [&](const char* name, const Words& more, int ranks) {
    Words words{"retro", "page", t.project, "--text", t.folder / "new.txt", "--html", t.folder / name};
    return must_run(words, more, ranks).out;
  };
  const std::string one = page("one.html", {"--model", t.out, "--tokens", fmt::format("{}", tokens + 1)}, 1);
  double with = 0, without = 0;
  const auto at = one.find("loss ");
  ASSERT_NE(at, std::string::npos) << one;
  ASSERT_EQ(std::sscanf(one.c_str() + at, "loss %lf with neighbours, %lf without", &with, &without), 2) << one;
  EXPECT_NEAR(with, loss, 2e-6);
  EXPECT_NE(with, without);
  // The first token has no loss. Those of the first chunk but its last one see no neighbours.
  const std::string html = contents(t.folder / "one.html"), mark = "id=\"numbers\">";
  const std::size_t data = html.find(mark) + mark.size();
  const Json chunk = Json::parse(html.substr(data, html.find("</script>", data) - data)).at("chunks").at(0);
  EXPECT_TRUE(chunk.at("with").at(0).is_null());
  EXPECT_FALSE(chunk.at("with").at(1).is_null());
  for (std::size_t i = 1; i < chunk.at("gain").size(); ++i) EXPECT_EQ(chunk.at("gain").at(i).get<double>(), 0) << i;
  page("two.html", {"--model", t.out, "--tokens", fmt::format("{}", tokens + 1)}, 2);
  EXPECT_EQ(contents(t.folder / "one.html"), contents(t.folder / "two.html"));
  page("plain.html", {"-k", "3"}, 1);
  const std::string plain = contents(t.folder / "plain.html");
  EXPECT_NE(plain.find("<b>3. document "), std::string::npos);
  EXPECT_EQ(plain.find("id=\"bar\""), std::string::npos);
}

TEST(retrieval, page_leaves_out_copies_and_names_errors) {
  const Trained& t = trained();
  const auto page = [&](const Words& more) {
    Words words{"retro", "page", t.project, "--text", t.folder / "text.txt", "--html", t.folder / "copies.html", "--tokens", "300"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  // Chunks of a text of the database find themselves, unless copies are left out.
  must(page({"-k", "1"}));
  const std::string own = contents(t.folder / "copies.html");
  must(page({"-k", "1", "--overlap", "6"}));
  const std::string others = contents(t.folder / "copies.html");
  const auto shared = [](const std::string& html) {
    std::size_t all = 0;
    for (std::size_t at = html.find("<mark>"); at != std::string::npos; at = html.find("<mark>", at + 1)) ++all;
    return all;
  };
  EXPECT_LT(shared(others), shared(own));
  expect_refused(page({"--model", t.folder / "nothing"}), Exit::missing, "nothing");
  expect_refused({"retro", "page", t.project, "--text", t.folder / "nothing.txt", "--html", t.folder / "x.html"}, Exit::missing, "nothing.txt");
  put_contents(t.folder / "mine.html", "mine");
  expect_refused({"retro", "page", t.project, "--text", t.folder / "text.txt", "--html", t.folder / "mine.html"}, Exit::usage,
                 "gyrfalcon did not write it");
  EXPECT_EQ(contents(t.folder / "mine.html"), "mine");
}

// The added layers start with no effect: the first loss has the bits of the model without them. If only they are trained, a text
// without neighbours is that of the stored model.
TEST(retrieval, added_layers_keep_the_function_of_the_model) {
  const Trained& t = trained();
  const fs::path base = t.folder / "base", same = t.folder / "same", fit = t.folder / "fit";
  const auto train = [&](const fs::path& out, const Words& more) {
    Words words{"train", t.deck, "output.folder=" + out.string()};
    words.insert(words.end(), more.begin(), more.end());
    must(words);
  };
  const auto first_loss = [](const fs::path& out) {
    std::istringstream lines(contents(out / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json event = Json::parse(line); event.value("kind", "") == "step") return event.at("loss").dump();
    return std::string();
  };
  train(base, {"model.pattern=P*-"});
  const Words start{"--init-from", base.string(), "train.log_every=1", "optimizer.lr=3e-2", "train.steps=4", "train.eval_every=0"};
  const auto with = [&](Words more) {
    more.insert(more.end(), start.begin(), start.end());
    return more;
  };
  train(same, with({"model.pattern=P*-"}));
  train(fit, with({"model.pattern=P*R-",
                   "optimizer.frozen=[model.embed_tokens.*, model.layers.0.*, model.layers.1.*, model.layers.3.*, "
                   "model.final_layernorm.*, lm_head.*]"}));
  EXPECT_FALSE(first_loss(same).empty());
  EXPECT_EQ(first_loss(fit), first_loss(same));
  const auto text = [&](const fs::path& model, const Words& more) {
    return must_run({"generate", model, "--greedy", "--tokens", "20", "--prompt", "w1 w2 w3 w4 w5 w0", "--prompt", "w7 w7"}, more).out;
  };
  EXPECT_EQ(text(fit, {"--retrieval", "off"}), text(base, {}));
  EXPECT_NE(text(fit, {}), text(base, {}));
  expect_refused({"train", t.deck, "--init-from", base, "model.pattern=*R-", "output.folder=" + (t.folder / "other_fit").string()}, Exit::config,
                 "model.pattern without its layers R is *-");
}

TEST(retrieval, generation_refuses_what_does_not_fit) {
  const auto refused = [&](const Words& more, Exit code, const std::string& part) {
    Words words{"generate", trained().out, "--prompt", "w1"};
    words.insert(words.end(), more.begin(), more.end());
    expect_refused(words, code, part);
  };
  refused({"--retrieval", "off", "--cite"}, Exit::usage, "--retrieval off finds no passages");
  refused({"--data", "2", "--cite"}, Exit::usage, "leave out --data");
  refused({"--retrieval", trained().folder / "nothing"}, Exit::missing, "gyrfalcon retro build-db");
  const fs::path other = trained().folder / "other";
  must({"retro", "build-db", other, "--data", trained().prefix, "--chunk", "16"});
  refused({"--retrieval", other}, Exit::config, "model.retrieval.chunk = 8, but the chunks of");
}

}  // namespace gyr::testing::retrieval_suite
