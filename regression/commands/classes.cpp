// SPDX-License-Identifier: BSD-3-Clause
// Tests of encoders with the program: classification and tagging from labelled JSONL (data build, train, eval), masked
// language modelling, and fine-tuning of an MLM checkpoint with a new head.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "regression/support/material.hpp"

namespace gyr::testing::classes_suite {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

const Words fillers{"mi", "tu", "sha", "or", "ith", "pe"}, markers{"ka", "ren", "qua"};

// Texts of filler words with one marker word. In `texts` the marker is the class of the text; in `words` each word has
// a tag.
struct Examples {
  Folder folder;
  fs::path texts = folder / "texts", words = folder / "words";
  Result built[2];

  Examples() {
    std::mt19937 random(3);
    std::string of_texts, of_words;
    for (int i = 0; i < 800; ++i) {
      const int label = int(random() % 3);
      Words text;
      for (unsigned n = 3 + random() % 6; n > 0; --n) text.push_back(fillers[random() % fillers.size()]);
      text[random() % text.size()] = markers[label];
      std::string joined;
      Json tags;
      for (const std::string& word : text) {
        joined += (joined.empty() ? "" : " ") + word;
        if (word == markers[label]) tags.push_back(label + 1);
        else if (random() % 4 == 0) tags.push_back(nullptr);
        else tags.push_back("O");
      }
      of_texts += Json{{"text", joined}, {"label", i % 2 ? Json(label) : Json(markers[label])}}.dump() + "\n";
      of_words += (i % 2 ? Json{{"tokens", text}, {"tags", tags}} : Json{{"text", joined}, {"tags", tags}}).dump() + "\n";
    }
    put_contents(texts.string() + ".jsonl", of_texts);
    put_contents(words.string() + ".jsonl", of_words);
    built[0] = build(texts, "--classes", "ka,ren,qua");
    built[1] = build(words, "--tags", "O,KA,REN,QUA");
  }
  static Result build(const fs::path& prefix, const std::string& option, const std::string& names, const fs::path& to = {}, int ranks = 0) {
    return run({"data", "build", prefix.string() + ".jsonl", to.empty() ? prefix : to, "--tokenizer", Material::get().tokenizer(), option, names},
               {.ranks = ranks});
  }
};

const Examples& examples() {
  static const Examples examples;
  return examples;
}

const Words encoder{"model.pattern='*-*-'",     "model.attention.causal=false", "model.norm_placement=after", "model.norm=layer",
                    "model.positions=40",       "model.type_vocab_size=2",      "train.seq_length=32",        "model.attention.rotary_fraction=0",
                    "model.attention.bias=true"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words learns(const fs::path& prefix, const Words& more) {
  return with(encoder, with({"data.prefixes=[" + prefix.string() + "]", "data.order=documents", "data.documents=separate"}, more));
}
const Words of_texts{"train.objective=classify", "train.classify.labels=[ka, ren, qua]"},
    of_words{"train.objective=tag", "train.tag.labels=[O, KA, REN, QUA]"};

Json evaluated(const fs::path& checkpoint, const Words& more, int ranks = 0, std::string* text = nullptr) {
  const Folder folder;
  const Result r = run(with({"eval", checkpoint, "--precision", "fp64", "--overwrite", "--json", folder / "summary.json"}, more), {.ranks = ranks});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  if (text) *text = r.out;
  return json_in(folder / "summary.json").at("results");
}

// The class counts must be equal on any grid, and the losses must agree up to rounding.
void expect_same_on_grids(const fs::path& checkpoint, const fs::path& prefix, const Json& single_rank) {
  for (const Words& grid : {Words{"--tensor", "4"}, {"--tensor", "1"}, {"--tensor", "2", "--pipeline", "2"}}) {
    const Json many = evaluated(checkpoint, with({"--data", prefix}, grid), 4);
    EXPECT_EQ(many.at("classes"), single_rank.at("classes"));
    EXPECT_NEAR(double(many.at("loss")), double(single_rank.at("loss")), 1e-12);
  }
}

// --records writes one line per label. The lines must add up to the reported accuracy and be the same on four ranks.
void expect_records_of(const fs::path& checkpoint, const fs::path& prefix, const Json& figures) {
  const Folder folder;
  std::string single_rank;
  for (const int ranks : {0, 4}) {
    evaluated(checkpoint, {"--data", prefix, "--records", folder / "records"}, ranks);
    double hits = 0, labels = 0;
    std::string logged;
    for (const std::string& line : lines_of(contents(folder / "records"))) {
      Json record = Json::parse(line);
      hits += record.at("class") == record.at("label"), ++labels;
      record.erase("loss");
      logged += record.dump() + "\n";
    }
    EXPECT_EQ(labels, double(figures.at("classes").at("labels")));
    EXPECT_NEAR(hits / labels, double(figures.at("classes").at("accuracy")), 1e-12);
    EXPECT_EQ(logged, single_rank.empty() ? logged : single_rank);
    single_rank = logged;
  }
}

}  // namespace

TEST(classes, data_build_reports_labels_and_ignores_rank_count) {
  for (const Result& built : examples().built) ASSERT_EQ(built.code, 0) << built.out << built.err;
  EXPECT_NE(examples().built[0].out.find("texts_labels.bin: 800 labels"), std::string::npos) << examples().built[0].out;
  EXPECT_EQ(contents(examples().texts.string() + "_labels.txt"), "ka\nren\nqua\n");
  const Folder folder;
  ASSERT_EQ(Examples::build(examples().words, "--tags", "O,KA,REN,QUA", folder / "p", 2).code, 0);
  for (const char* file : {".bin", ".idx", "_labels.bin", "_labels.idx", "_labels.txt"})
    EXPECT_EQ(contents((folder / "p").string() + file), contents(examples().words.string() + file)) << file;
}

TEST(classes, model_learns_to_classify_texts) {
  const Folder folder;
  const Result r = run(Material::get().train(folder.path(), with(learns(examples().texts, of_texts), {"train.steps=60"})));
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  const Folder first;
  ASSERT_EQ(run(Material::get().train(first.path(), with(learns(examples().texts, of_texts), {"train.steps=1"}))).code, 0);
  EXPECT_LT(double(evaluated(Material::checkpoint(first.path(), 1), {"--data", examples().texts}).at("classes").at("accuracy")), 0.6);
  std::string text;
  const Json all = evaluated(Material::checkpoint(folder.path(), 60), {"--data", examples().texts}, 0, &text);
  EXPECT_GT(double(all.at("classes").at("accuracy")), 0.97);
  EXPECT_EQ(double(all.at("classes").at("labels")), 800);
  EXPECT_NE(text.find("macro F1"), std::string::npos) << text;
  EXPECT_NE(text.find("predicted as qua"), std::string::npos) << text;
  expect_same_on_grids(Material::checkpoint(folder.path(), 60), examples().texts, all);
  expect_records_of(Material::checkpoint(folder.path(), 60), examples().texts, all);
  // Training also works with more tensor-parallel ranks than classes, and gives the same losses.
  const Folder four;
  const Words few = with(learns(examples().texts, of_texts), {"train.steps=4", "parallel.tensor=4", "parallel.sequence=true"});
  ASSERT_EQ(run(Material::get().train(four.path(), few), {.ranks = 4}).code, 0);
  const auto one = losses(folder.path()), many = losses(four.path());
  for (int step = 1; step <= 4; ++step) EXPECT_NEAR(many.at(step), one.at(step), 1e-5) << "step " << step;
}

// Validation scores must be equal on any grid, with mean pooling of a text and with one label per token.
TEST(classes, validation_accuracy_and_f1_agree_on_any_grid) {
  for (const Words& task : {with(of_texts, {"train.classify.pool=mean"}), of_words}) {
    const fs::path& data = task[0] == of_words[0] ? examples().words : examples().texts;
    std::vector<Json> single_rank;
    for (const Words& grid : {Words{}, {"parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=2"}, {"parallel.context=2"}}) {
      const Folder folder;
      const Words words = with(learns(data, task), with({"train.steps=20", "train.eval_every=10", "data.split=\"4,1,0\""}, grid));
      const int ranks = grid.size() == 3 ? 4 : grid.empty() ? 0 : 2;
      const Result r = run(Material::get().train(folder.path(), words), {.ranks = ranks});
      ASSERT_EQ(r.code, 0) << r.out << r.err;
      EXPECT_NE(r.out.find(", macro F1 "), std::string::npos) << r.out;
      const auto found = metrics(folder.path(), "validation");
      ASSERT_EQ(found.size(), 2u);
      if (single_rank.empty()) single_rank = found;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(double(found[i]["loss"]), double(single_rank[i]["loss"]), 1e-4);
        for (const char* key : {"accuracy", "macro_f1", "micro_f1"})
          EXPECT_NEAR(double(found[i][key]), double(single_rank[i][key]), 0.02) << key << " " << i;
        EXPECT_DOUBLE_EQ(double(found[i]["accuracy"]), double(found[i]["micro_f1"]));  // equal, because every example has exactly one class
      }
    }
  }
}

TEST(classes, model_learns_to_tag_words) {
  const Folder folder;
  const Result r = run(Material::get().train(folder.path(), with(learns(examples().words, of_words), {"train.steps=40"})));
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  const Json all = evaluated(Material::checkpoint(folder.path(), 40), {"--data", examples().words});
  EXPECT_GT(double(all.at("classes").at("accuracy")), 0.97);
  EXPECT_GT(double(all.at("classes").at("macro_f1")), 0.97);
  for (const char* length : {"25", "31", "39"}) {  // no label is lost for any window length
    const Json packed = evaluated(Material::checkpoint(folder.path(), 40), {"--data", examples().words, "--length", length});
    EXPECT_EQ(packed.at("classes"), all.at("classes")) << length;
    EXPECT_NEAR(double(packed.at("loss")), double(all.at("loss")), 1e-12) << length;
    const std::string epoch = fmt::format("train.global_batch_size={}", int(packed.at("sequences")));
    const Words step{"--init-from",
                     Material::checkpoint(folder.path(), 40),
                     "train.seq_length=" + std::string(length),
                     "train.steps=1",
                     "data.split='1'",
                     "train.eval_every=0",
                     "train.precision=fp64",
                     epoch};
    const Result trained = run(Material::get().train(folder / length, with(learns(examples().words, of_words), step)));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_NEAR(losses(folder / length).at(1), double(all.at("loss")), 1e-9) << length;
  }
  expect_same_on_grids(Material::checkpoint(folder.path(), 40), examples().words, all);
}

// Pretrains with masked language modelling, then trains a classifier on the same encoder.
TEST(classes, mlm_checkpoint_is_fine_tuned_with_new_head) {
  const Folder folder;
  const Words mlm = with(encoder, {"train.objective=mlm", "train.mlm.mask_token=1", "train.steps=30", "checkpoint.every=10"});
  ASSERT_EQ(run(Material::get().train(folder / "mlm", mlm)).code, 0);
  const auto course = losses(folder / "mlm");
  EXPECT_LT(course.at(30), course.at(1) - 0.3);
  const fs::path trunk = Material::checkpoint(folder / "mlm", 30);
  const Words start = with(learns(examples().texts, of_texts), {"--init-from", trunk});
  const Result refused = run(Material::get().train(folder / "x", start));
  EXPECT_EQ(refused.code, int(Exit::config)) << refused.out;
  EXPECT_NE(refused.err.find("train.init_head=new"), std::string::npos) << refused.err;
  const Words tuned = with(start, {"train.init_head=new", "train.steps=20"});
  const Result r = run(Material::get().train(folder / "classify", tuned));
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  for (const char* part :
       {"weights are read; new: pooler.dense.weight, pooler.dense.bias, classifier.bias, classifier.weight", "left out: lm_head.dense.weight"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << " in " << r.out;
  const auto tuning = losses(folder / "classify");
  EXPECT_NEAR(tuning.at(1), std::log(3.), 0.2);  // loss of an untrained head with three classes
  EXPECT_LT(tuning.at(20), tuning.at(1));
  EXPECT_EQ(run({"generate", Material::checkpoint(folder / "classify", 20), "--prompt", "ka"}).code, int(Exit::config));
}

TEST(classes, mlm_resumes_with_same_bits_and_is_evaluated) {
  const Folder folder;
  const auto until = [&](const char* name, const char* steps, const Words& more = {}) {
    const Words mlm = with(encoder, {"train.objective=mlm", "train.mlm.mask_token=1", "optimizer.decay_steps=8", steps});
    const Result r = run(Material::get().train(folder / name, with(mlm, more)));
    EXPECT_EQ(r.code, 0) << r.out << r.err;
  };
  until("whole", "train.steps=8"), until("parts", "train.steps=3"), until("parts", "train.steps=8", {"--resume"});
  expect_bitwise_equal_runs(folder / "whole", folder / "parts", 8);
  const fs::path trained = Material::checkpoint(folder / "whole", 8);
  const Json single_rank = evaluated(trained, {"--limit", "20", "--logits", folder / "logits.h5"}), two = evaluated(trained, {"--limit", "20"}, 2);
  EXPECT_NEAR(double(single_rank.at("loss")), double(two.at("loss")), 1e-12);
  EXPECT_TRUE(fs::exists(folder / "logits.h5"));
  EXPECT_EQ(run({"eval", trained, "--text", Material::get().text()}).code, int(Exit::usage));
}

// The mask token is taken from the folder's tokenizer_config.json or from --mask-token.
TEST(classes, exported_mlm_folder_scores_as_its_checkpoint) {
  const Folder folder;
  const Words mlm = with(encoder, {"train.objective=mlm", "train.mlm.mask_token=1", "model.tie_word_embeddings=true", "train.steps=2",
                                   "model.mlp.gated=false", "model.mlp.bias=true", "model.attention.num_kv_heads=4"});
  ASSERT_EQ(run(Material::get().train(folder / "out", mlm)).code, 0);
  const fs::path trained = Material::checkpoint(folder / "out", 2), model = folder / "model";
  const Result exported = run({"export-hf", trained, model});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Words data{"--data", Material::get().prefix(), "--limit", "9", "--length", "32"};
  const Json wanted = evaluated(trained, data);
  const Result unknown = run(with({"eval", model}, data));
  EXPECT_EQ(unknown.code, int(Exit::config)) << unknown.out;
  EXPECT_NE(unknown.err.find("--mask-token"), std::string::npos) << unknown.err;
  EXPECT_EQ(evaluated(model, with(data, {"--mask-token", "1"})), wanted);
  EXPECT_NE(evaluated(model, with(data, {"--mask-token", "2"})), wanted);
  EXPECT_EQ(evaluated(model, with(data, {"--mask-token", "1", "--objective", "mlm"})), wanted) << "the objective of the model itself";
  put_contents(model / "tokenizer_config.json", R"({"mask_token": "<|bos|>"})");
  EXPECT_EQ(evaluated(model, data), wanted);
  ASSERT_EQ(run({"import-hf", model, folder / "imported"}).code, 0);
  EXPECT_EQ(evaluated(folder / "imported", data), wanted);
  for (const auto& [words, part] :
       {std::pair<Words, const char*>{{"eval", model, "--mask-token", "300"}, "--mask-token 300: the model's vocabulary has 300"},
        {{"eval", Material::get().trained(), "--mask-token", "1"}, "train.objective = next_token, which masks no"}}) {
    const Result r = run(with(words, data));
    EXPECT_EQ(r.code, int(Exit::usage)) << r.out;
    EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
  }
}

TEST(classes, wrong_class_labels_and_settings_are_refused) {
  const Folder folder;
  const auto train = [&](const Words& words) { return run(Material::get().train(folder / "out", words)); };
  const auto expect = [](const Result& r, Exit code, const std::string& part) {
    EXPECT_EQ(r.code, int(code)) << r.out << r.err;
    EXPECT_NE(r.err.find(part), std::string::npos) << part << " in " << r.err;
  };
  expect(train(with(learns(Material::get().prefix(), of_texts), {})), Exit::missing, "gyrfalcon data build --classes");
  expect(train(with(learns(examples().texts, of_words), {})), Exit::data, "the classes are ka, ren, qua, but the model's are O, KA, REN, QUA");
  expect(train(with(learns(examples().texts, of_texts), {"data.documents=joined"})), Exit::config, "data.documents: separate");
  const std::pair<const char*, const char*> lines[] = {{R"({"text": "a", "label": "cat"})", "has the class 'cat' under 'label'"},
                                                       {R"({"text": "a", "label": 3})", "has the class 3 under 'label', but there are 3"},
                                                       {R"({"text": "", "label": 1})", "has an empty text"},
                                                       {R"({"text": "a"})", "has no key 'label'"}};
  for (const auto& [line, part] : lines) {
    put_contents(folder / "bad.jsonl", std::string(line) + "\n");
    expect(Examples::build(folder / "bad", "--classes", "ka,ren,qua"), Exit::data, part);
  }
  put_contents(folder / "bad.jsonl", R"({"tokens": ["a", "b"], "tags": [0]})");
  expect(Examples::build(folder / "bad", "--tags", "2"), Exit::data, "has 1 tags for 2 words");
  expect(Examples::build(folder / "bad", "--tags", "a,a"), Exit::usage, "different names separated by commas");
}

}  // namespace gyr::testing::classes_suite
