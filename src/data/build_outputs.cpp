// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/build_outputs.hpp"

#include "kernels/base/error.hpp"
#include "src/data/class_labels.hpp"
#include "src/data/fingerprint.hpp"
#include "src/data/loss_mask.hpp"
#include "src/data/prompts.hpp"
#include "src/data/token_file.hpp"

namespace gyr {

namespace fs = std::filesystem;

std::vector<fs::path> outputs_of(const fs::path& prefix) {
  std::vector<fs::path> files;
  for (const auto& part : {prefix, mask_prefix(prefix), labels_prefix(prefix)})
    for (const auto& path : {index_path(part), tokens_path(part)}) files.push_back(path);
  files.push_back(fields_path(prefix)), files.push_back(fingerprint_path(prefix));
  return files;
}

void require_prefix_for(const std::vector<fs::path>& inputs, const fs::path& prefix) {
  std::error_code error;
  const auto same = [&](const fs::path& a, const fs::path& b) { return a.lexically_normal() == b.lexically_normal() || fs::equivalent(a, b, error); };
  const std::string remedy = fmt::format(
      "the last word is the PREFIX of the files to write; give one after the text files, as in `data build {0} {1}` for {1}.bin and {1}.idx",
      prefix.string(), fs::path(prefix).replace_extension().string() + "_tokens");
  for (const fs::path& input : inputs) {
    require(!same(input, prefix), Exit::usage, "{}: is an input and also the PREFIX; {}", prefix.string(), remedy);
    for (const fs::path& output : outputs_of(prefix))
      require(!same(input, output), Exit::usage, "{}: is an input, and PREFIX {} would replace it; choose another PREFIX", output.string(),
              prefix.string());
  }
  require(!fs::is_regular_file(prefix, error), Exit::usage, "{}: is an existing file, not a PREFIX; {}", prefix.string(), remedy);
}

}  // namespace gyr
