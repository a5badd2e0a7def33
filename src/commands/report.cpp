// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon report: history of runs as text, as an HTML page or as a picture.
#include <cstdio>
#include <map>
#include <memory>

#include "src/base/output_file.hpp"
#include "src/base/quantity.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/history/history_page.hpp"
#include "src/history/history_picture.hpp"
#include "src/history/history_text.hpp"

namespace gyr {

namespace {

// Runs whose folders have the same name get their full path as name.
void disambiguate_names(std::vector<RunHistory>& runs) {
  std::map<std::string, int> named;
  for (const RunHistory& run : runs) ++named[run.name];
  for (RunHistory& run : runs)
    if (named[run.name] > 1) run.name = run.folder;
}

void write(const std::string& name, const std::string& content, std::size_t runs) {
  OutputFile file(name);
  file.append(content);
  file.commit();
  std::printf("wrote %s (%s)\n", name.c_str(), counted(Index(runs), "run").c_str());
}

}  // namespace

void add_report(Command& app, Action& action) {
  struct Arguments {
    std::vector<std::string> outputs;
    std::string page, picture;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("report", "Report the history of runs: loss curves, starts, kills, checkpoints, memory, differences between decks");
  c->add_option("outputs", a->outputs, "Output folders of runs")->required();
  c->add_option("--html", a->page, "Write one self-contained HTML page, with every value under the pointer, instead of text");
  c->add_option("--svg", a->picture, "Write the loss curves as an SVG picture of a few kB, for light and dark pages, instead of text");
  c->callback([a, &action] {
    action = [a] {
      return guarded([&] {
        std::vector<RunHistory> runs;
        for (const std::string& output : a->outputs) runs.push_back(read_history(output));
        disambiguate_names(runs);
        if (a->page.empty() && a->picture.empty()) std::printf("%s", text_of(runs).c_str());
        if (!a->page.empty()) write(a->page, page_of(runs), runs.size());
        if (!a->picture.empty()) write(a->picture, picture_of(runs), runs.size());
      });
    };
  });
}

}  // namespace gyr
