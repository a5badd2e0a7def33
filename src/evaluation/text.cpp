// SPDX-License-Identifier: BSD-3-Clause
// Perplexity of text: per token, per word and per byte, of documents read in strided windows.
#include <algorithm>

#include "src/base/quantity.hpp"
#include "src/evaluation/examples.hpp"
#include "src/evaluation/mean.hpp"
#include "src/evaluation/windows.hpp"

namespace gyr {

namespace {

// Number of words: runs of bytes that are not ASCII white space.
Index words_of(std::string_view text) {
  Index words = 0;
  for (std::size_t at = 0; (at = text.find_first_not_of(white_space, at)) != text.npos; ++words)
    at = std::min(text.find_first_of(white_space, at), text.size());
  return words;
}

struct Document {
  std::vector<Token> tokens;  // settings.begin if set, then the tokens of the text
  Index words, bytes;
};

class TextEvaluation : public Evaluation {
 public:
  TextEvaluation(const std::vector<std::filesystem::path>& files, const DocumentFormat& format, Index stride, const TextSettings& settings) {
    for (const auto& file : files) read(file, format, settings);
    for (std::size_t d = 0; d < documents_.size(); ++d)
      for (const Window& w : strided_windows(Index(documents_[d].tokens.size()), settings.window, stride)) {
        windows_.push_back({d, w});
        passages_.lengths.push_back(w.last - w.first);
      }
    require(!windows_.empty(), Exit::data, "{}: {}", files.front().string(),
            documents_.empty() ? "holds no text" : "no document has two tokens, so there is nothing to predict");
    require(seen_ > 1 || settings.limit == 0 || passages_.count() <= settings.limit, Exit::usage,
            "--limit {}: counts documents, and {} is one document of {} windows; give --documents page, which divides it into documents of 4 KiB, "
            "or build token files (gyrfalcon data build) and give --data, whose windows --limit counts",
            settings.limit, files.front().string(), passages_.count());
    passages_.make = [this](Index i) {
      const auto& [d, w] = windows_[i];
      const auto y = documents_[d].tokens.begin();
      Passage p{{y + w.first, y + w.last}, {y + w.first + 1, y + w.last + 1}};
      std::fill(p.labels.begin(), p.labels.begin() + (w.scored - w.first - 1), ignored_label);
      return p;
    };
  }
  const Passages& passages() const override { return passages_; }

  Conclusion conclude(const std::vector<PassageScore>& scores) const override {
    Conclusion c;
    Mean loss;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto& [d, w] = windows_[i];
      loss.add(scores[i].tokens, scores[i].loss, scores[i].squares);
      c.records.push_back({{"document", d}, {"first", w.first}, {"scored", w.scored}, {"last", w.last}, {"loss", scores[i].loss}});
    }
    Index words = 0, bytes = 0;
    for (const Document& d : documents_) words += d.words, bytes += d.bytes;
    const double perplexity = std::exp(loss.value()), word = std::exp(loss.sum() / double(words)), bits = loss.sum() / double(bytes) / std::log(2.0);
    c.text = fmt::format(
        "loss {:.6f} ± {:.6f} | perplexity {:.4f} | word perplexity {:.4f} | byte perplexity {:.6f} | bits per byte {:.6f} | "
        "{}, {}, {} of {}",
        loss.value(), loss.error(), perplexity, word, std::exp2(bits), bits, counted(Index(loss.count()), "token"), counted(words, "word"),
        counted(bytes, "byte"), counted(Index(documents_.size()), "document"));
    c.results = {{"loss", loss.value()},
                 {"loss_stderr", loss.error()},
                 {"perplexity", perplexity},
                 {"word_perplexity", word},
                 {"byte_perplexity", std::exp2(bits)},
                 {"bits_per_byte", bits},
                 {"log_likelihood", -loss.sum()},
                 {"tokens", Index(loss.count())},
                 {"words", words},
                 {"bytes", bytes},
                 {"documents", documents_.size()},
                 {"windows", scores.size()}};
    if (skipped_ > 0) c.text += fmt::format(", {} skipped", counted(skipped_, "line")), c.results["skipped"] = skipped_;
    return c;
  }

 private:
  void read(const std::filesystem::path& path, const DocumentFormat& format, const TextSettings& settings) {
    DocumentFile file(path, format);
    std::string text;
    skipped_ += file.visit(0, file.blocks(), [&](const Fragment& part) {
      text += part.text;
      if (!part.ends) return;
      ++seen_;
      if (settings.limit == 0 || Index(documents_.size()) < settings.limit) add(text, settings, path.string());
      text.clear();
    });
  }
  void add(const std::string& text, const TextSettings& settings, const std::string& place) {
    Document d{{}, words_of(text), Index(text.size())};
    if (settings.begin) d.tokens.push_back(*settings.begin);
    const std::vector<Token> tokens = encoded(text, settings, place);
    d.tokens.insert(d.tokens.end(), tokens.begin(), tokens.end());
    documents_.push_back(std::move(d));
  }

  std::vector<Document> documents_;
  Index seen_ = 0;                                       // number of documents in the files
  Index skipped_ = 0;                                    // number of invalid lines skipped
  std::vector<std::pair<std::size_t, Window>> windows_;  // each window with the index of its document
  Passages passages_;
};

}  // namespace

std::unique_ptr<Evaluation> text_evaluation(const std::vector<std::filesystem::path>& files, const DocumentFormat& format, Index stride,
                                            const TextSettings& settings) {
  return std::make_unique<TextEvaluation>(files, format, stride, settings);
}

}  // namespace gyr
