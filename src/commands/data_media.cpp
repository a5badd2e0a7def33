// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon data media LINES.jsonl PREFIX --processor FOLDER: decodes and resizes the images that a JSONL file names, as
// the image processor of a model does, and stores them in PREFIX.media.h5. Under mpiexec the ranks share the work.
#include "src/commands/data_media.hpp"

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/commands/notes.hpp"
#include "src/commands/runtime.hpp"
#include "src/media/build.hpp"
#include "src/parallel/grid.hpp"
#include "src/report/transfer.hpp"

namespace gyr {

namespace {

struct MediaArguments {
  std::string lines, prefix, processor, root, bad_items = "refuse";
  Index block = media::BuildSettings().block, pixels = media::DecodeLimits().pixels;
  bool overwrite = false;
};

media::BuildSettings settings_of(const MediaArguments& a) {
  media::BuildSettings s;
  s.lines = a.lines, s.prefix = a.prefix, s.root = a.root;
  s.processor = media::read_processor(a.processor);
  s.limits.pixels = a.pixels, s.block = a.block;
  s.skip_bad = a.bad_items == "skip", s.overwrite = a.overwrite;
  return s;
}

constexpr std::int64_t most_reasons = 20;

// Prints the reasons of the first skipped lines.
void print_skipped(const media::BuildResult& result) {
  std::int64_t shown = 0;
  for (std::size_t begin = 0; begin < result.reasons.size() && shown < most_reasons; ++shown) {
    const std::size_t end = result.reasons.find('\n', begin);
    print_note("skipped: " + result.reasons.substr(begin, end - begin));
    begin = end + 1;
  }
  if (shown < result.counts.skipped) print_note(fmt::format("{} further lines were skipped", result.counts.skipped - shown));
}

void print_result(const media::BuildSettings& s, const media::BuildResult& result, double seconds) {
  const media::StoreCounts& counts = result.counts;
  print_skipped(result);
  std::printf("%s: %s of %s in %s, %s of pixels, %.1f s\n", printable(media::store_path(s.prefix).string()).c_str(),
              counted(counts.items, "picture").c_str(), counted(counts.images, "image").c_str(), counted(counts.sequences, "sample").c_str(),
              metric_text(double(counts.bytes), "B").c_str(), seconds);
  std::printf("%s, %ld of them from an earlier call; skipped lines: %ld\n", counted(result.blocks, "block").c_str(), long(result.kept),
              long(counts.skipped));
}

int build_media(const MediaArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        Grid grid(grid_layout(runtime.ranks(), 1, 1, {{0, 1}}), runtime.world(), wait_policy_of(runtime.world()));
        const media::BuildSettings settings = settings_of(a);
        const auto begin = std::chrono::steady_clock::now();
        std::optional<StatusLine> shown;
        if (runtime.rank() == 0) shown.emplace(stdout, 30);
        const media::BuildResult result = media::build_store(settings, grid.world(), notes_of(runtime), [&](std::int64_t done, std::int64_t total) {
          if (shown && shown->due()) shown->show(fmt::format("prepared {} of {} lines, {}", done, total, duration(shown->seconds())));
        });
        shown.reset();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (runtime.rank() == 0) print_result(settings, result, seconds);
      },
      LastLine::never);
}

}  // namespace

void add_data_media(Command& data, Action& action) {
  const auto a = std::make_shared<MediaArguments>();
  Command* const c = data.add_command("media", "Decode and resize the images of a JSONL file into PREFIX.media.h5");
  c->add_option("lines", a->lines,
                "JSONL file with one sample per line: {\"messages\": [...]} with image parts, {\"image\": ..., \"conversations\": [...]} or "
                "{\"text\": ..., \"images\": [...]}. Paths of PNG, JPEG and WebP files are relative to its folder")
      ->required();
  c->add_option("prefix", a->prefix, "PREFIX of the store PREFIX.media.h5")->required();
  c->add_option("--processor", a->processor, "Hugging Face folder with preprocessor_config.json, or such a file")->required();
  c->add_option("--root", a->root, "Folder that all images must lie in; default: the folder of the JSONL file");
  c->add_option("--bad-items", a->bad_items, "Reaction to a bad image or line: refuse (end with its name) or skip (leave out the line)")
      ->one_of({"refuse", "skip"})
      ->show_default();
  c->add_option("--max-pixels", a->pixels, "Maximum pixels of an image file")->between(1, 1e9)->show_default();
  c->add_option("--block", a->block, "Lines that a rank prepares in memory before it writes them")->between(1, 1e6)->show_default();
  c->add_flag("--overwrite", a->overwrite, "Replace an existing store");
  c->callback([a, &action] { action = [a] { return build_media(*a); }; });
}

}  // namespace gyr
