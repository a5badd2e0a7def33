// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/run_identity.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "src/base/input_file.hpp"
#include "src/base/json.hpp"
#include "src/base/output_file.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/folder.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

constexpr const char *file_name = "run.json", *checkpoints_name = "checkpoints";

bool is_id(const std::string& id) { return id.size() == 16 && id.find_first_not_of("0123456789abcdef") == std::string::npos; }

RunIdentity read_identity(const fs::path& file) {
  const Json json = json_of_file(file);
  const std::string id = json.is_object() ? text_in(json, "run") : "";
  const auto unmarked_until = json.is_object() ? integer_in(json, "unmarked_until") : std::nullopt;
  require(is_id(id) && unmarked_until, Exit::data,
          "{}: contains no valid run id; remove this file to resume from the checkpoint that checkpoints/latest names", file.string());
  return {id, *unmarked_until};
}

// Step of the checkpoint that the file `latest` names; the highest possible step if it names none.
std::int64_t latest_step(const fs::path& checkpoints) {
  const std::string text = text_or_nothing(checkpoints / "latest", most_json), name = text.substr(0, text.find('\n'));
  for (const std::int64_t step : committed_steps(checkpoints))
    if (existing_path(checkpoints, step).filename().string() == name) return step;
  return std::numeric_limits<std::int64_t>::max() - 1;
}

// Run id for the name of the folder; "unknown" if it cannot be read, so that damaged runs can be moved as well.
std::string id_in(const fs::path& output) {
  try {
    const auto identity = identity_in(output);
    return identity ? identity->id : "unknown";
  } catch (const Error&) {
    return "unknown";
  }
}

}  // namespace

RunIdentity RunIdentity::drawn() {
  std::random_device random;  // system entropy, not the run's seed: two runs with the same seed get different ids
  return {hex(std::uint64_t(random()) << 32 | random())};
}

std::optional<RunIdentity> identity_in(const fs::path& output) {
  std::error_code error;
  if (fs::exists(output / file_name, error)) return read_identity(output / file_name);
  const fs::path checkpoints = output / checkpoints_name;
  const std::int64_t latest = latest_step(checkpoints);
  const auto newest = newest_checkpoint(checkpoints, {}, latest + 1);
  if (!newest) return {};
  const CheckpointHeader header = read_header(*newest);
  if (!header.run.empty()) return RunIdentity{header.run};
  RunIdentity identity = RunIdentity::drawn();
  identity.unmarked_until = header.step;
  return identity;
}

void write_identity(const fs::path& output, const RunIdentity& identity) {
  OutputFile file(output / file_name);
  file.append(json_text({{"run", identity.id}, {"unmarked_until", identity.unmarked_until}}) + "\n");
  file.commit();
}

std::int64_t newest_step_of_run(const fs::path& output) {
  const auto identity = identity_in(output);
  if (!identity) return 0;
  const auto newest = newest_checkpoint(output / checkpoints_name, {}, std::numeric_limits<std::int64_t>::max(), &*identity);
  return newest ? read_header(*newest).step : 0;
}

namespace {

// Files and folders of a run, in the order in which they are moved. The checkpoints folder moves in one rename.
// run.json moves before it: the checkpoints carry the run id themselves, but a run.json left behind would give the old
// id to the next run.
const char* const left_names[] = {file_name, checkpoints_name, "critic", "rollouts", "dumps", "trace", "metrics.jsonl", "tensorboard", "deck.yaml"};

// Repairs a symbolic link that was moved from output/item to aside/item: it keeps its target, unless the target was
// moved as well.
void keep_target(const fs::path& output, const fs::path& aside, const fs::path& item) {
  const fs::path target = fs::read_symlink(aside / item), home = fs::canonical(output), place = (fs::canonical(aside) / item).parent_path();
  if (target.is_absolute()) return;
  const fs::path from_home = (home / item.parent_path() / target).lexically_normal().lexically_relative(home);
  if (std::find(std::begin(left_names), std::end(left_names), *from_home.begin()) != std::end(left_names)) return;
  const fs::path again = OutputFile::temporary(aside / item);
  fs::create_symlink(home.lexically_relative(place) / from_home, again);
  fs::rename(again, aside / item);
}

void keep_targets(const fs::path& output, const fs::path& aside, const fs::path& name) try {
  if (fs::is_symlink(aside / name)) return keep_target(output, aside, name);
  if (!fs::is_directory(aside / name)) return;
  std::vector<fs::path> links;
  for (const auto& entry : fs::recursive_directory_iterator(aside / name, fs::directory_options::skip_permission_denied))
    if (entry.is_symlink()) links.push_back(entry.path().lexically_relative(aside));
  for (const fs::path& link : links) keep_target(output, aside, link);
} catch (const fs::filesystem_error& error) {
  fail(Exit::io, "{}: a symbolic link in it cannot be adjusted to the move: {}", (aside / name).string(), error.what());
}

}  // namespace

std::optional<fs::path> set_aside(const fs::path& output) {
  std::error_code error;
  if (std::none_of(std::begin(left_names), std::end(left_names), [&](const char* name) { return fs::exists(output / name, error); })) return {};
  const std::string id = id_in(output);
  fs::path aside = output / "set_aside" / id;
  for (int again = 2; fs::exists(aside, error); ++again) aside = output / "set_aside" / fmt::format("{}.{}", id, again);
  fs::create_directories(aside, error);
  require(!error, Exit::io, "{}: cannot be created: {}", aside.string(), error.message());
  for (const char* name : left_names) {
    if (!fs::exists(output / name, error)) continue;
    fs::rename(output / name, aside / name, error);
    require(!error, Exit::io, "{}: cannot be moved to {}: {}", (output / name).string(), aside.string(), error.message());
    keep_targets(output, aside, name);
    sync_folder(output);
  }
  sync_folder(aside);
  return aside;
}

}  // namespace gyr
