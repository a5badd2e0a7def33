// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/outcome.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/output_file.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

std::filesystem::path status_path(const std::filesystem::path& output) { return output / "status.json"; }

void write_outcome(const std::filesystem::path& output, const Outcome& o) noexcept {
  try {
    const nlohmann::ordered_json json = {{"state", o.state}, {"code", o.code}, {"step", o.step}, {"rank", o.rank}, {"message", o.message},
                                         {"time", double(wall_nanoseconds()) * 1e-9}};
    OutputFile file(status_path(output));
    file.append(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    file.commit();
  } catch (const std::exception&) {
  }
}

std::optional<Outcome> read_outcome(const std::filesystem::path& output) {
  std::ifstream in(status_path(output));
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object()) return {};
  try {
    return Outcome{json.at("state"), json.at("code"), json.at("step"), json.at("rank"), json.at("message")};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace gyr
