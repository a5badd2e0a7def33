// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon manual: writes the man pages and shell completions that `make install` installs.
#include "src/commands/manual.hpp"

#include <cstdio>
#include <memory>

#include "src/base/output_file.hpp"
#include "src/commands/command.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/commands/guard.hpp"
#include "src/report/build_facts.hpp"

namespace gyr {

namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  require(!error, Exit::io, "{}: the folder cannot be created: {}", file.parent_path().string(), error.message());
  OutputFile out(file);
  out.append(text);
  out.commit();
}

// Text of the page on deck keys.
std::string deck_page() {
  Deck deck = Deck::describe();
  read_run_config(deck);
  return "\nKeys of the deck. Each can also be set as key=value on the command line:\n\n" + deck.help() +
         "\nMFU = 3 x forward FLOPs per token x tokens per second / (ranks x peak FLOP/s). Forward FLOPs count the causal half of\n"
         "attention and the SSM as a plain recurrence, without recomputation. The peak of a CPU rank is its GEMM throughput, measured at start.\n";
}

void write_manual(const CommandHelp& program, const std::filesystem::path& folder) {
  const std::vector<Page> pages = man_pages(program, version(), deck_page());
  for (const Page& page : pages) write(folder / "share/man" / ("man" + page.file.substr(page.file.size() - 1)) / page.file, page.text);
  std::vector<std::string> paths;
  for (const Declaration& key : deck_keys()) paths.push_back(key.path);
  write(folder / "share/bash-completion/completions/gyrfalcon", bash_completion(program, paths));
  write(folder / "share/zsh/site-functions/_gyrfalcon", zsh_completion(program, paths));
  write(folder / "share/fish/vendor_completions.d/gyrfalcon.fish", fish_completion(program, paths));
  std::printf("%s: %zu pages for man, completion for bash, zsh and fish\n", folder.c_str(), pages.size());
}

}  // namespace

void add_manual(Command& app, Action& action) {
  auto folder = std::make_shared<std::string>();
  Command* c = app.add_command("manual", "Write man pages, and completion for bash, zsh and fish, below FOLDER/share");
  c->add_option("folder", *folder, "Installation prefix, as /usr/local")->required();
  c->callback([folder, &app, &action] {
    action = [folder, &app] {
      return guarded([&] {
        require(app.help_text({*folder}).empty(), Exit::usage,
                "manual: `{0}` is a command, and this one writes man pages to a folder; `gyrfalcon help {0}` prints the help of {0}, and "
                "`gyrfalcon manual ./{0}` writes to a folder of this name",
                *folder);
        write_manual(app.help(), *folder);
      });
    };
  });
}

}  // namespace gyr
