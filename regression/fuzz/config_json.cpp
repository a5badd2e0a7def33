// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target for config.json. Any text is rejected with Exit::data, or gives a model that is the same after writing
// and reading it again.
#include <cstdint>
#include <cstdlib>

#include "src/huggingface/config_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gyr;
  HuggingFaceConfig config;
  try {
    config = parse_config_json({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const Error& error) {
    if (error.code != Exit::data || std::string_view(error.what()).size() > 2000) std::abort();
    return 0;
  }
  const std::string text = write_config_json(config);
  if (write_config_json(parse_config_json(text, "written")) != text) std::abort();
  return 0;
}
