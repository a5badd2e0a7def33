// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon report: history of runs as text, as an HTML page or as a picture, and answers of a policy run as an HTML page.
#include <cstdio>
#include <map>
#include <memory>

#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/history/history_page.hpp"
#include "src/history/history_picture.hpp"
#include "src/history/history_text.hpp"
#include "src/page/page_file.hpp"
#include "src/report/transfer.hpp"
#include "src/samples/samples_page.hpp"

namespace gyr {

namespace {

// Runs whose folders have the same name get their full path as name.
void disambiguate_names(std::vector<RunHistory>& runs) {
  std::map<std::string, int> named;
  for (const RunHistory& run : runs) ++named[run.name];
  for (RunHistory& run : runs)
    if (named[run.name] > 1) run.name = run.folder;
}

void write(const std::string& name, const std::string& content, const std::string& counts) {
  write_page_file(name, content);
  std::printf("wrote %s (%s)\n", name.c_str(), counts.c_str());
}

// Writes the page of samples, and prints its suspects.
void write_samples(const std::string& name, const std::vector<std::string>& outputs, const SamplesOptions& options) {
  require(outputs.size() == 1, Exit::usage, "--samples describes one run, and {} are given; call report once for each", outputs.size());
  constexpr double seconds_between_lines = 5;
  SamplesPage page;
  {
    StatusLine line(stderr, seconds_between_lines);
    page = samples_page(outputs.front(), options, [&](const std::string& text) {
      if (line.due()) line.show(text);
    });
  }
  write(name, page.html,
        fmt::format("{}, {}, {}", counted(Index(page.iterations), "iteration"), counted(Index(page.answers), "answer"),
                    counted(Index(page.suspects.size()), "suspect")));
  for (const Suspect& s : page.suspects) std::printf("suspect: %s (%s)\n", printable(s.title).c_str(), printable(s.figure).c_str());
}

}  // namespace

void add_report(Command& app, Action& action) {
  struct Arguments {
    std::vector<std::string> outputs;
    std::string page, picture, samples;
    SamplesOptions of_samples;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("report", "Report the history of runs: loss curves, starts, kills, checkpoints, memory, differences between decks");
  c->add_option("outputs", a->outputs, "Output folders of runs")->required();
  c->add_option("--html", a->page, "Write one self-contained HTML page, with every value under the pointer, instead of text");
  c->add_option("--svg", a->picture, "Write the loss curves as an SVG picture of a few kB, for light and dark pages, instead of text");
  Option* samples =
      c->add_option("--samples", a->samples,
                    "Write one self-contained HTML page about a run of policy training: suspects such as reward hacking, curves, and the "
                    "best, worst and randomly drawn answers, instead of text");
  c->add_option("--iterations", a->of_samples.iterations, "--samples: iterations whose answers are shown, evenly chosen with the first and the last")
      ->show_default()
      ->positive()
      ->needs(samples);
  c->add_option("--tokenizer", a->of_samples.tokenizer, "--samples: tokenizer.json; default: the one that the run's deck names")->needs(samples);
  c->add_option("--page-megabytes", a->of_samples.megabytes, "--samples: maximum size of the page in MB; longer answers lose their middle")
      ->show_default()
      ->between(0.1, 1000)
      ->needs(samples);
  c->callback([a, &action] {
    action = [a] {
      return guarded([&] {
        for (const std::string& file : {a->samples, a->page, a->picture}) check_page_file(file);
        if (!a->samples.empty()) write_samples(a->samples, a->outputs, a->of_samples);
        if (!a->samples.empty() && a->page.empty() && a->picture.empty()) return;
        std::vector<RunHistory> runs;
        for (const std::string& output : a->outputs) runs.push_back(read_history(output));
        disambiguate_names(runs);
        if (a->page.empty() && a->picture.empty()) std::printf("%s", text_of(runs).c_str());
        if (!a->page.empty()) write(a->page, page_of(runs), counted(Index(runs.size()), "run"));
        if (!a->picture.empty()) write(a->picture, picture_of(runs), counted(Index(runs.size()), "run"));
      });
    };
  });
}

}  // namespace gyr
